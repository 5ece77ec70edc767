"""Benchmarks: ``make bench``. Figures are ratios or quantiles of one run on one machine, loopback only."""
