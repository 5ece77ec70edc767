"""Key names. All keys of one pool share the hash tag ``{pool}``: every script runs on one Redis Cluster slot.

The scripts derive every key from the prefix, so this is the one place that spells it. What lies under it:

  counters        hash    depth:<class>, tokens:<class>, running, clock:<class>, tick
  tenants         hash    tenant -> tokens waiting and running
  drain           hash    how fast interactive jobs leave the queue: rate (tokens a second) and its sums
  queue:<class>   zset    job -> its place in the fair order
  suspects        zset    jobs whose worker died -> class, times blamed, when; tried a few at a time
  fair:<class>    zset    tenant -> its last finish tag
  job:<id>        hash    body, state, tenant, class, cost, sequences, start, rank, fence, attempts, crashes, worker,
                          claim, retention_ms, suspect_len, fingerprint, client_state
  out:<id>        list    the replay list: every Event of the job
  workers         zset    worker -> lease deadline, ms
  worker:<name>   hash    what it serves and how it is; claim_number and claim_ids of its last claim;
                          on_trial, its suspects, and num_cleared, how many it has seen past their crash
  held:<name>     hash    job -> fence
  deadlines       zset    job -> when it expires, ms
  watchers        zset    job -> until when somebody is known to want it, ms
  bell:<class>    list    capped doorbell: BLPOP wakes a worker that has room for the class
  idem:<t>:<key>  string  idempotency key of tenant t -> job id
  response:<id>   hash    what the API keeps of a response beyond its job: record, answer
  stored:*                what the kept responses take, see scripts/response_ledger.lua
  file:<id>       string  the record of a stored file, JSON
  file_holds:<id> zset    who reads the file -> until when, s: as long it cannot be deleted
  files:of:<t>    zset    file of tenant t -> its place in the order of creation
  files:bytes     hash    tenant -> bytes of its files
  files:expiring  zset    file -> when it expires, s
  files:uploading zset    file that is not known yet -> when its upload was last heard of, s
  files:doomed    zset    file that is forgotten -> since when its bytes are to be deleted, s
  batch:<id>      hash    the order, the state and the counts of a batch; see scripts/*_batch.lua
  batch_open:<id> set     places of its plan that are jobs now
  batch_outputs:<id>, batch_errors:<id>  list  stored parts of its files     batch_lock:<id>  string  who drives it
  batches:active  zset    batch -> created_at; batches:ended, of those that have ended; batches:littered, a set of them
  batches:of:<t>  zset    batch of tenant t -> serial number, from batches:serial
  batches:totals  hash    lines and batches that have ended, by state
  webhooks        zset    batch -> when its webhook is due, seconds
  webhook:<id>    hash    event, created_at, num_tries
  tide            string  written to learn whether all before it is on disk
  frames          channel one frame per engine step
"""


def prefix(pool: str) -> str:
    return f"headrace:{{{pool}}}:"
