"""The structures of headrace.h, as ctypes sees them."""

from ctypes import POINTER, Structure, c_double, c_float, c_int64, c_void_p

import torch

F32, BF16, INT8, INT4 = range(4)
FORMATS = {torch.float32: F32, torch.bfloat16: BF16}


class Linear(Structure):
    _fields_ = [
        ("format", c_int64),
        ("in_size", c_int64),
        ("out_size", c_int64),
        ("panels", c_void_p),
        ("bias", c_void_p),
    ]


class Pages(Structure):
    _fields_ = [("keys", c_void_p), ("values", c_void_p)]


class KVLayout(Structure):
    _fields_ = [
        ("format", c_int64),
        ("page_size", c_int64),
        ("kv_heads", c_int64),
        ("key_size", c_int64),
        ("value_size", c_int64),
    ]


class Batch(Structure):
    _fields_ = [
        ("num_tokens", c_int64),
        ("num_sequences", c_int64),
        ("num_logit_rows", c_int64),
        ("pages_per_sequence", c_int64),
        ("token_ids", c_void_p),
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("logit_rows", c_void_p),
        ("page_table", c_void_p),
        ("query_offsets", c_void_p),
        ("kv_lengths", c_void_p),
    ]


class Attention(Structure):
    _fields_ = [
        ("heads", c_int64),
        ("window", c_int64),
        ("scaling", c_float),
        ("softcap", c_float),
        ("sinks", c_void_p),
    ]


class Layer(Structure):
    _fields_ = [
        ("qkv", Linear),
        ("out", Linear),
        ("gate_up", Linear),
        ("down", Linear),
        ("attention_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("window", c_int64),
        ("has_rope", c_int64),
        ("pages", Pages),
    ]


class Decoder(Structure):
    _fields_ = [
        ("num_layers", c_int64),
        ("hidden_size", c_int64),
        ("heads", c_int64),
        ("rotary_size", c_int64),
        ("vocab_size", c_int64),
        ("norm_epsilon", c_float),
        ("scaling", c_float),
        ("kv", KVLayout),
        ("layers", POINTER(Layer)),
        ("final_norm", c_void_p),
        ("head", Linear),
        ("embedding", c_void_p),
        ("embedding_format", c_int64),
        ("cosines", c_void_p),
        ("sines", c_void_p),
    ]


class Sampling(Structure):
    _fields_ = [
        ("point", c_double),
        ("top_p", c_double),
        ("frequency_penalty", c_double),
        ("presence_penalty", c_double),
        ("temperature", c_float),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
        ("top_k", c_int64),
        ("num_seen", c_int64),
        ("seen_ids", c_void_p),
        ("seen_counts", c_void_p),
        ("num_biased", c_int64),
        ("biased_ids", c_void_p),
        ("biases", c_void_p),
        ("num_banned", c_int64),
        ("banned_ids", c_void_p),
        ("allowed", c_void_p),
        ("num_top", c_int64),
        ("top_ids", c_void_p),
        ("top_logprobs", c_void_p),
    ]


class Drawn(Structure):
    _fields_ = [("token_id", c_int64), ("status", c_int64), ("logprob", c_double)]
