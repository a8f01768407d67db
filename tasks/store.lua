--[[
Every move of a job, as one script (`turns.lua` follows, with whose turn it is, and `operator.lua`, with the verbs of those
who look after it):  EVALSHA … KEYS: the jobs' keys  ARGV: prefix, verb, now_ms, ttl_ms, dead_ttl_ms, quotas, the verb's own.

The table MOVES is the state machine; `move` is the only writer of `status`. A worker's write names its attempt and
changes nothing when that is not the running one. Times are ms of the server's TIME; a non-empty now_ms replaces it in
tests. Redis 6.2 commands only. All keys begin with the prefix; on a Cluster it needs a hash tag, as in `{safelight}:`.

  job:{id}        hash    the record. No TTL while live, PEXPIRE ttl_ms once terminal. Its fields:
                          request (JSON) model priority group digest deadline seq created retry_of tenant (but `default`)
                          rows stamp: written once;
                          status attempt worker started progress finished outputs error warnings metrics: see tasks/job.py;
                          errors: JSON objects, comma-separated, one for each failed or lost attempt;
                          token: of the claim, so that a repeated call after a lost reply is answered alike;
                          num_errors, crashes, solo_crashes, released: attempts that ended in an error, by a lapsed lease,
                          the same while isolated (solo = 1), by a drain; hinted, hints: time and number of Celery messages;
                          preview, done: ids of the stream's newest preview and of its done event;
                          work: its outputs times its steps; queued: since when it waits; told: when progress was written;
                          trace: W3C traceparent of whoever submitted it; batching: whose company its last attempt had
  faults:{id}     list    JSON {attempt, worker, at, traceback} of the last MAX_FAULTS failed or lost attempts; goes when the
                          job ends, unless it is a dead letter
  events:{id}     stream  status, progress, preview, done; MAXLEN ~ 256; goes EVENTS_TTL after the end. There is none while the
                          job waits for the first time, as a stream takes 4 KiB: readers make up its `queued` from the record
                          (`unwritten` in tasks/event_codec.py), and the first move writes it down with that very id
  abort:{id}      string  the durable wish to abort; an outside program may SET it. Deleted when the job ends, and without a
                          TTL until then: a Redis that evicts keys with one must not forget it
  idem:{key}      string  job id of an idempotency key; PX ttl_ms
  queue:{model}   zset    queued ids by priority (9 first), then seq: for counts
  line:{model}:{tenant}  zset  queued ids in the order in which they are claimed: by time of creation (`stamp`), a level of
                          priority for a minute of it
  turns:{model}   zset    tenants with a line by the virtual time at which their next job starts; see turns.lua
  rested:{model}  zset    tenants that are still ahead of the clock though their lines are empty
  clock           hash    model -> virtual time, while anybody waits
  rows:{queued|running}:{tenant|group}  hash  name -> rows of its jobs in that state
  parked          hash    model -> messages whose turn found all tenants at their limits
  turn:{token}    string  job that a claim took which was not the hinted one, so that a repeated call is answered alike; PX
  stamp           string  the newest job's
  running:{model} zset    running ids by claim time
  hints           zset    queued ids by the time at which their next message, or their deadline, is due
  leases          zset    running ids by the end of their lease
  jobs, status:{s}, group:{g}  zsets  ids by seq, for listing
  live:{g}        zset    ids of the group that are not terminal, by seq
  dead            zset    dead letters by time, the newest MAX_INDEX; their records stay for dead_ttl_ms, or until they leave it
  litter          zset    ended jobs that may have left a checkpoint in the bucket, by when to look; the newest MAX_INDEX
  expiry          zset    "id" or "id group" of terminal jobs by the time at which their record goes; `trim` clears the indexes
  worker:{name}   string  JSON of its last beat, PX; `workers` zset: names by the time they are given up
  drain:{worker}  string  the wish that this very process drains, PX; its beat is answered with it
  webhooks        zset    ended jobs that have a webhook_url, by the time at which to tell it; see tasks/webhook_queue.py
  videos          zset    jobs made through /v1/videos by time of creation; see tasks/video_index.py
  pace            hash    model -> moving average of the seconds that a successful attempt takes
  work            hash    model -> sum of the work of its queued jobs
  speeds:{model}  hash    worker -> how fast it serves the model, as of its last beat and claim; see tasks/eta.py
  counters        hash    "model what label …" -> how often; see tasks/tally.py
  seq             string  counter of jobs: the order of creation
]]
local P, verb, TTL = ARGV[1], ARGV[2], tonumber(ARGV[4])
local DEAD_TTL = math.max(TTL, tonumber(ARGV[5]) or 0)
local call = redis.call
local now = tonumber(ARGV[3])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local MOVES = {
  queued = {running = true, aborted = true, failed = true},
  running = {queued = true, succeeded = true, failed = true, aborted = true},
  succeeded = {}, failed = {}, aborted = {},
}
local EVENTS_TTL, HINT_BASE, MAX_ATTEMPTS_EXTRA, CRASHES_TO_SOLO, MAX_SOLO_CRASHES = 300000, 5000, 10, 2, 2
local MAX_FAULTS, MAX_INDEX, LITTER_DELAY, DRAIN_TTL = 10, 10000, 120000, 3600000
local TEXTS = {'status', 'model', 'group', 'worker', 'token', 'tenant'}
local FIELDS = {'status', 'model', 'group', 'worker', 'token', 'tenant',
                'attempt', 'priority', 'seq', 'deadline', 'started', 'num_errors', 'crashes', 'solo', 'solo_crashes',
                'released', 'hints', 'hinted', 'work', 'rows', 'stamp'} -- the texts, then numbers

local VERBS, Turns = {}, {} -- `turns.lua` fills the second

local function key(name, part) return P .. name .. (part and (':' .. part) or '') end
local function is_terminal(status) return next(MOVES[status]) == nil end
local function abort_wanted(id) return call('EXISTS', key('abort', id)) == 1 end

local function load(id)
  local job, values = {id = id, key = key('job', id)}, call('HMGET', key('job', id), unpack(FIELDS))
  for index, value in ipairs(values) do
    if index > #TEXTS then value = tonumber(value or 0) end
    job[FIELDS[index]] = value or nil
  end
  if not job.status then return nil end
  job.tenant = job.tenant or 'default'
  return job
end

local function count(model, what, by) call('HINCRBY', key('counters'), model .. ' ' .. what, by or 1) end

-- What an attempt measured: field, amount, …
local function observe(job, ...)
  local args = {...}
  for at = 1, #args, 2 do count(job.model, args[at], args[at + 1]) end
end

local function emit(job, type, data)
  return call('XADD', key('events', job.id), 'MAXLEN', '~', 256, '*', 'type', type, 'data', data)
end

local function emit_status(job, type, abort)
  local data = {status = job.status, attempt = job.attempt, worker = job.worker, abort_requested = abort}
  return emit(job, type, cjson.encode(data))
end

-- The event of a job's creation, when it leaves the queue for the first time.
local function emit_queued(job)
  if call('EXISTS', key('events', job.id)) == 1 then return end
  local born = call('HGET', job.key, 'created') .. '-0'
  call('XADD', key('events', job.id), born, 'type', 'status', 'data', cjson.encode({status = 'queued', attempt = 0}))
end

local function add_error(job, error)
  local earlier = call('HGET', job.key, 'errors')
  call('HSET', job.key, 'errors', earlier and (earlier .. ',' .. error) or error)
end

-- What only an operator sees of a failed attempt.
local function add_fault(job, traceback)
  local fault = {attempt = job.attempt, worker = job.worker, at = now, traceback = traceback ~= '' and traceback or nil}
  call('RPUSH', key('faults', job.id), cjson.encode(fault))
  call('LTRIM', key('faults', job.id), -MAX_FAULTS, -1)
end

-- Some time passes before the look: an upload that its worker no longer waits for may still arrive.
local function litter(id)
  call('ZADD', key('litter'), now + LITTER_DELAY, id)
  call('ZREMRANGEBYRANK', key('litter'), 0, -MAX_INDEX - 1)
end

local function expiry_entry(id, group) return group and (id .. ' ' .. group) or id end

-- The record and the indexes of a job that has just ended.
local function close(job)
  local ttl = job.is_dead and DEAD_TTL or TTL
  call('HSET', job.key, 'finished', now, 'done', emit_status(job, 'done'))
  count(job.model, job.error_type and 'ended ' .. job.status .. ' ' .. job.error_type or 'ended ' .. job.status)
  call('HDEL', job.key, 'token', 'num_errors', 'crashes', 'solo', 'solo_crashes', 'released', 'hints', 'hinted', 'preview',
       'work', 'queued', 'told', 'rows', 'stamp')
  call('PEXPIRE', job.key, ttl)
  call('PEXPIRE', key('events', job.id), math.min(TTL, EVENTS_TTL))
  call('DEL', key('abort', job.id))
  call('ZADD', key('expiry'), now + ttl, expiry_entry(job.id, job.group))
  if job.is_dead then call('PEXPIRE', key('faults', job.id), ttl) else call('DEL', key('faults', job.id)) end
  if job.group then call('ZREM', key('live', job.group), job.id) end
  local is_json, request = pcall(cjson.decode, call('HGET', job.key, 'request'))
  if is_json and type(request.webhook_url) == 'string' then call('ZADD', key('webhooks'), now, job.id) end
end

local function set_hint_due(job, due)
  if job.deadline > 0 then due = math.min(due, job.deadline) end
  call('ZADD', key('hints'), due, job.id)
end

-- Whoever queues a job publishes its first message as well; the sweep is for the lost ones.
local function enqueue(job)
  call('HSET', job.key, 'hinted', now, 'hints', 0, 'queued', now)
  call('ZADD', key('queue', job.model), (9 - job.priority) * 2 ^ 40 + job.seq, job.id)
  call('HINCRBY', key('work'), job.model, job.work)
  Turns.enter(job)
  set_hint_due(job, now + HINT_BASE)
end

-- The one writer of `status`. The caller has written what else belongs to the new state.
local function move(job, to)
  local from = job.status
  assert(MOVES[from][to], 'no transition ' .. from .. ' -> ' .. to)
  job.status = to
  call('HSET', job.key, 'status', to)
  call('ZREM', key('status', from), job.id)
  call('ZADD', key('status', to), job.seq, job.id)
  local left = call('ZREM', key(from == 'queued' and 'queue' or 'running', job.model), job.id)
  if from == 'queued' and left == 1 then
    if call('HINCRBY', key('work'), job.model, -job.work) <= 0 then call('HDEL', key('work'), job.model) end
    Turns.leave(job)
    emit_queued(job)
  end
  if from == 'running' and left == 1 then Turns.book(job, 'running', -job.rows) end
  if to == 'running' then Turns.book(job, 'running', job.rows) end
  call('ZREM', key(from == 'queued' and 'hints' or 'leases'), job.id)
  if to == 'queued' then
    job.worker = nil
    call('HDEL', job.key, 'worker', 'token', 'started', 'progress', 'told', 'solo')
    enqueue(job)
  end
  emit_status(job, 'status')
  if is_terminal(to) then
    -- The first attempt finds no checkpoint and, unless it is lost or gives the job back, leaves none.
    if job.may_litter or job.attempt > (from == 'running' and 1 or 0) then litter(job.id) end
    close(job)
  end
end

-- Takes a dead letter off the index; its record then stays as long as any other's, which may be over.
local function settle_letter(id)
  if call('ZREM', key('dead'), id) == 0 then return 0 end
  local finished, group = unpack(call('HMGET', key('job', id), 'finished', 'group'))
  call('DEL', key('faults', id))
  if finished then
    local ends = tonumber(finished) + TTL
    if ends > now then call('PEXPIRE', key('job', id), ends - now) else call('DEL', key('job', id)) end
    call('ZADD', key('expiry'), ends, expiry_entry(id, group))
  end
  return 1
end

local function fail(job, error, is_dead)
  call('HSET', job.key, 'error', error)
  job.error_type = cjson.decode(error).type
  if is_dead then
    job.is_dead = true
    call('ZADD', key('dead'), now, job.id)
    for _, oldest in ipairs(call('ZRANGE', key('dead'), 0, -MAX_INDEX - 1)) do settle_letter(oldest) end
  end
  move(job, 'failed')
end

local function fail_late(job)
  local message = 'the deadline passed before the job was done'
  local error = {type = 'deadline_exceeded', message = message, retryable = false, attempt = job.attempt}
  fail(job, cjson.encode(error), false)
end

local function is_late(job) return job.deadline > 0 and job.deadline <= now end
local function is_worn_out(job, max_attempts) return job.attempt - job.released >= MAX_ATTEMPTS_EXTRA + max_attempts end

-- ok, fenced or terminal; the job only with ok.
local function current(id, attempt)
  local job = load(id)
  if not job then return 'fenced' end
  if is_terminal(job.status) then return 'terminal' end
  if job.status ~= 'running' or job.attempt ~= tonumber(attempt) then return 'fenced' end
  return 'ok', job
end

-- What ETAs need of a model: queued, work, pace, running, speeds. `seen`: facts by model, for calls that look at many jobs
-- and change none of them.
local function facts_of(model, seen)
  local facts = seen[model]
  if not facts then
    facts = {queued = call('ZCARD', key('queue', model)), work = call('HGET', key('work'), model) or 0,
             pace = call('HGET', key('pace'), model) or '', running = call('ZCARD', key('running', model)),
             speeds = call('HGETALL', key('speeds', model))}
    seen[model] = facts
  end
  return facts
end

-- {id, fields, position, queued, work, pace, running, speeds, now, abort} for a reader, or nil. What only an ETA needs is
-- left out once the job has ended; `abort` is 1 while its end is wanted.
local function snapshot(id, seen)
  local fields, record = call('HGETALL', key('job', id)), {}
  if #fields == 0 then return false end
  for at = 1, #fields, 2 do record[fields[at]] = fields[at + 1] end
  if is_terminal(record.status) then return {id, fields, -1, 0, 0, '', 0, {}, now, 0} end
  local facts, position, queued, work = facts_of(record.model, seen or {}), -1, 0, 0
  if record.status == 'queued' then
    position = Turns.position(id, record.model, record.tenant or 'default', facts)
    queued, work = facts.queued, facts.work
  end
  local wanted = abort_wanted(id) and 1 or 0
  return {id, fields, position, queued, work, facts.pace, facts.running, facts.speeds, now, wanted}
end

local function abort(job)
  if job.status == 'queued' then
    move(job, 'aborted')
  elseif job.status == 'running' and not abort_wanted(job.id) then
    call('SET', key('abort', job.id), '1')
    emit_status(job, 'status', true)
  end
end

local function abort_live(group, limit)
  local ids = call('ZRANGEBYSCORE', key('live', group), '-inf', '+inf', 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do
    local job = load(id)
    if job then abort(job) else call('ZREM', key('live', group), id) end
  end
  return ids
end

local function forget(id)
  call('DEL', key('job', id), key('events', id), key('abort', id), key('faults', id))
  for _, index in ipairs({'jobs', 'dead', 'webhooks_dead', 'status:succeeded', 'status:failed', 'status:aborted'}) do
    call('ZREM', key(index), id)
  end
  call('HDEL', key('webhook_letters'), id)
end

-- A live job whose record was evicted or deleted from outside: it must fill no queue.
local function erase(id)
  forget(id)
  litter(id)
  for _, index in ipairs({'hints', 'leases', 'status:queued', 'status:running'}) do call('ZREM', key(index), id) end
  for _, model in ipairs(call('HKEYS', key('pace'))) do
    call('ZREM', key('queue', model), id)
    call('ZREM', key('running', model), id)
    Turns.drop(model, id)
    if call('ZCARD', key('queue', model)) == 0 then call('HDEL', key('work'), model) end -- how much was its own is gone too
  end
end

-- Drop what has expired. A record of the same id that was made since then stays.
local function trim(limit)
  for _, entry in ipairs(call('ZRANGEBYSCORE', key('expiry'), '-inf', now, 'LIMIT', 0, limit)) do
    local id, group = string.match(entry, '^(%S+) ?(.*)$')
    local finished = call('HMGET', key('job', id), 'status', 'finished')
    local ttl = call('ZSCORE', key('dead'), id) and DEAD_TTL or TTL
    local reborn = finished[1] and (not finished[2] or tonumber(finished[2]) + ttl > now)
    if not reborn then forget(id) end
    if group ~= '' and not reborn then call('ZREM', key('group', group), id) end
    call('ZREM', key('expiry'), entry)
  end
end

local function write_record(job, request, digest, deadline_ms, trace)
  local id, group = job.id, job.group
  job.stamp = Turns.stamp()
  job.seq, job.deadline = call('INCR', key('seq')), deadline_ms ~= '' and now + tonumber(deadline_ms) or 0
  call('HSET', job.key, 'request', request, 'model', job.model, 'priority', job.priority, 'digest', digest, 'seq', job.seq,
       'created', now, 'attempt', 0, 'status', 'queued', 'work', job.work, 'rows', job.rows, 'stamp', job.stamp)
  if job.tenant ~= 'default' then call('HSET', job.key, 'tenant', job.tenant) end
  if trace ~= '' then call('HSET', job.key, 'trace', trace) end
  if job.deadline > 0 then call('HSET', job.key, 'deadline', job.deadline) end
  call('ZADD', key('jobs'), job.seq, id)
  call('ZADD', key('status', 'queued'), job.seq, id)
  if group then
    call('HSET', job.key, 'group', group)
    call('ZADD', key('group', group), job.seq, id)
    call('ZADD', key('live', group), job.seq, id)
  end
end

local function create_one(facts, max_queued, id, request, model, priority, group, supersede, digest, idem, deadline_ms, trace, work,
                          rejected, retry_of, tenant, rows)
  local known = idem ~= '' and call('GET', key('idem', idem)) or id
  if call('EXISTS', key('job', known)) == 0 then known = id end
  local seen = call('HGET', key('job', known), 'digest')
  if seen then
    if seen ~= digest then return {'conflict', known} end
    return {'known', snapshot(known)}
  end
  if retry_of ~= '' and not call('ZSCORE', key('dead'), retry_of) then return {'no letter', retry_of} end
  if rejected == '' and call('ZCARD', key('status', 'queued')) >= tonumber(max_queued) then return {'full'} end
  local job = {id = id, key = key('job', id), model = model, priority = tonumber(priority), attempt = 0, status = 'queued',
               work = tonumber(work), tenant = tenant, rows = tonumber(rows), group = group ~= '' and group or nil}
  local refusal = rejected == '' and Turns.refusal(job, supersede == '1')
  if refusal then return refusal end
  if call('ZSCORE', key('jobs'), id) then erase(id) end
  if idem ~= '' then call('SET', key('idem', idem), id, 'PX', TTL) end
  if supersede == '1' then abort_live(group, -1) end
  write_record(job, request, digest, deadline_ms, trace)
  count(model, 'created')
  if retry_of ~= '' then
    call('HSET', job.key, 'retry_of', retry_of)
    settle_letter(retry_of)
  end
  call('HSETNX', key('pace'), model, 0)
  for _, name in ipairs({'pace', 'counters'}) do call('PEXPIRE', key(name), math.max(TTL, 2592000000)) end
  if rejected ~= '' then
    add_error(job, rejected)
    fail(job, rejected, false)
    return {'new', now, -1}
  end
  enqueue(job)
  return {'new', now, Turns.position(id, model, tenant, facts)}
end

local function lapse(id, max_attempts)
  local job = load(id)
  if not job then return erase(id) end
  if job.status ~= 'running' then
    call('ZREM', key('leases'), id)
    return nil
  end
  job.may_litter = true
  local message = 'the worker stopped answering while it ran attempt ' .. job.attempt
  local error = cjson.encode({type = 'worker_lost', message = message, retryable = true, attempt = job.attempt})
  add_error(job, error)
  count(job.model, 'lost')
  add_fault(job, '')
  local crash = job.solo == 1 and 'solo_crashes' or 'crashes'
  job[crash] = call('HINCRBY', job.key, crash, 1)
  if abort_wanted(id) then
    move(job, 'aborted')
  elseif is_late(job) then
    fail_late(job)
  elseif job.solo_crashes >= MAX_SOLO_CRASHES or is_worn_out(job, max_attempts) then
    fail(job, error, true)
  else
    move(job, 'queued')
  end
  return {id, job.model, job.priority, job.status}
end

local function hint_interval(job, depth)
  return depth == 0 and HINT_BASE or HINT_BASE * 2 ^ math.min(job.hints, 4)
end

-- One candidate for a new message: {id, model, priority}, or nil. `depth`: model -> messages in the broker, where known.
local function hint(id, depth)
  local job = load(id)
  if not job then
    erase(id)
  elseif job.status ~= 'queued' then
    call('ZREM', key('hints'), id)
  elseif abort_wanted(id) then
    move(job, 'aborted')
  elseif is_late(job) then
    fail_late(job)
  elseif job.hinted + hint_interval(job, depth[job.model]) <= now then
    local waiting = depth[job.model]
    if waiting and waiting >= call('ZCARD', key('queue', job.model)) then
      set_hint_due(job, now + hint_interval(job, waiting))
      return nil
    end
    job.hints = job.hints + 1
    call('HSET', job.key, 'hinted', now, 'hints', job.hints)
    set_hint_due(job, now + hint_interval(job, waiting))
    if waiting then depth[job.model] = waiting + 1 end
    return {id, job.model, job.priority}
  end
end

function VERBS.moves() return cjson.encode(MOVES) end

function VERBS.create(max_queued, ...)
  local args, width, replies, seen, last = {...}, 15, {}, {}, nil
  for first = 1, #args, width do
    local owner = args[first + 2] .. ' ' .. args[first + 13]
    -- While one tenant's jobs of one model follow one another, nobody else's lines change.
    if owner ~= last or args[first + 5] == '1' then seen, last = {}, owner end
    replies[#replies + 1] = create_one(seen, max_queued, unpack(args, first, first + width - 1))
  end
  return replies
end

function VERBS.get(id) return snapshot(id) end

function VERBS.list(status, group, limit, cursor)
  local index = group ~= '' and key('group', group) or status ~= '' and key('status', status) or key('jobs')
  local found, seen, last = {}, {}, cursor == '' and '+inf' or '(' .. cursor
  for _ = 1, 20 do
    local entries = call('ZREVRANGEBYSCORE', index, last, '-inf', 'WITHSCORES', 'LIMIT', 0, 100)
    for at = 1, #entries, 2 do
      local real = call('HMGET', key('job', entries[at]), 'status', 'group')
      last = '(' .. entries[at + 1]
      if not real[1] then call('ZREM', index, entries[at]) end
      if real[1] and (status == '' or real[1] == status) and (group == '' or real[2] == group) then
        found[#found + 1] = snapshot(entries[at], seen)
      end
      if #found == tonumber(limit) then break end
    end
    if #entries < 200 or #found == tonumber(limit) then break end
  end
  return {call('ZCOUNT', index, '-inf', last) > 0 and string.sub(last, 2) or '', found}
end

function VERBS.abort(id)
  local job = load(id)
  if job then abort(job) end
  return snapshot(id)
end

function VERBS.abort_group(group, limit, cursor)
  local entries = call('ZRANGEBYSCORE', key('live', group), '(' .. cursor, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  local ids = {}
  for at = 1, #entries, 2 do
    local job = load(entries[at])
    if job then
      abort(job)
      ids[#ids + 1] = job.id
    else
      call('ZREM', key('live', group), entries[at])
    end
  end
  return {entries[#entries] or '', ids}
end

local function claimed(job)
  return {'claimed', job.attempt, job.crashes >= CRASHES_TO_SOLO and 1 or 0, snapshot(job.id)}
end

-- The worker has one more job in hand, which its next beat will tell.
local function count_in(job, worker)
  local speeds = key('speeds', job.model)
  local told = call('HGET', speeds, worker)
  if not told then return end
  local before, busy, left, behind = string.match(told, '^(%S+ %S+ %S+) (%d+) (%d+) (.*)$') -- see tasks/eta.py
  call('HSET', speeds, worker, string.format('%s %d %d %s', before, busy + job.rows, left + job.work, behind))
end

local function start(job, worker, lease_ms, token)
  Turns.charge(job)
  job.attempt, job.worker = call('HINCRBY', job.key, 'attempt', 1), worker
  count(job.model, 'attempts')
  call('HSET', job.key, 'worker', worker, 'token', token, 'started', now)
  move(job, 'running')
  call('ZADD', key('running', job.model), now, job.id)
  call('ZADD', key('leases'), now + tonumber(lease_ms), job.id)
  count_in(job, worker)
  return claimed(job)
end

-- This very job, out of turn and whatever the limits. Workers `take`.
function VERBS.claim(id, worker, lease_ms, token)
  local job = load(id)
  if not job then return {'unknown'} end
  if is_terminal(job.status) then return {'terminal'} end
  if job.status == 'running' then
    if job.token ~= token then return {'leased'} end
  elseif abort_wanted(id) then
    move(job, 'aborted')
    return {'aborted'}
  elseif is_late(job) then
    fail_late(job)
    return {'terminal'}
  else
    return start(job, worker, lease_ms, token)
  end
  return claimed(job)
end

function VERBS.renew(lease_ms, ...)
  local args, replies = {...}, {}
  for at = 1, #args, 2 do
    local written = current(args[at], args[at + 1])
    if written == 'ok' then call('ZADD', key('leases'), now + tonumber(lease_ms), args[at]) end
    replies[#replies + 1] = written ~= 'ok' and 'lost' or abort_wanted(args[at]) and 'abort' or 'held'
  end
  return replies
end

function VERBS.aborts_wanted(...)
  local wanted = {}
  for _, id in ipairs({...}) do
    if abort_wanted(id) then wanted[#wanted + 1] = id end
  end
  return wanted
end

function VERBS.report(...)
  local args = {...}
  for at = 1, #args, 3 do
    local written, job = current(args[at], args[at + 1])
    if written == 'ok' then
      call('HSET', job.key, 'progress', args[at + 2], 'told', now)
      emit(job, 'progress', args[at + 2])
    end
  end
end

function VERBS.preview(id, attempt, data)
  local written, job = current(id, attempt)
  if written == 'ok' then
    local earlier = call('HGET', job.key, 'preview')
    if earlier then call('XDEL', key('events', id), earlier) end
    call('HSET', job.key, 'preview', emit(job, 'preview', data))
  end
  return written
end

function VERBS.isolate(id, attempt, alone)
  local written, job = current(id, attempt)
  if written == 'ok' then call('HSET', job.key, 'solo', alone) end
  return written
end

-- Answers ok again to the attempt that ended the job so: its first reply may have been lost.
function VERBS.finish(id, attempt, status, outputs, error, warnings, metrics, batching, is_dead, traceback, ...)
  local written, job = current(id, attempt)
  if written == 'terminal' then
    local ended = load(id)
    return ended.status == status and ended.attempt == tonumber(attempt) and 'ok' or written
  elseif written ~= 'ok' then
    return written
  end
  for field, text in pairs({outputs = outputs, warnings = warnings, metrics = metrics, batching = batching}) do
    if text ~= '' then call('HSET', job.key, field, text) end
  end
  observe(job, ...)
  if error ~= '' then
    add_error(job, error)
    add_fault(job, traceback)
  end
  if status == 'succeeded' then
    local seconds, pace = (now - job.started) / 1000, tonumber(call('HGET', key('pace'), job.model) or 0)
    pace = pace > 0 and 0.8 * pace + 0.2 * seconds or seconds
    call('HSET', key('pace'), job.model, string.format('%.3f', pace))
  end
  if status == 'failed' then fail(job, error, is_dead == '1') else move(job, status) end
  return written
end

function VERBS.retry(id, attempt, error, max_attempts, metrics, is_dead, traceback, ...)
  local written, job = current(id, attempt)
  if written ~= 'ok' then return written end
  add_error(job, error)
  add_fault(job, traceback)
  observe(job, ...)
  job.num_errors = call('HINCRBY', job.key, 'num_errors', 1)
  if abort_wanted(id) then
    move(job, 'aborted')
  elseif is_late(job) then
    fail_late(job)
  elseif job.num_errors >= tonumber(max_attempts) or is_worn_out(job, max_attempts) then
    fail(job, error, is_dead == '1')
  else
    count(job.model, 'retried ' .. cjson.decode(error).type)
    move(job, 'queued')
  end
  if is_terminal(job.status) and metrics ~= '' then call('HSET', job.key, 'metrics', metrics) end
  return job.status
end

function VERBS.release(id, attempt)
  local written, job = current(id, attempt)
  if written == 'ok' and abort_wanted(id) then
    job.may_litter = true
    move(job, 'aborted')
  elseif written == 'ok' then
    call('HINCRBY', job.key, 'released', 1)
    count(job.model, 'given_back')
    move(job, 'queued')
  end
  return written
end

function VERBS.reap(max_attempts, limit)
  local reaped = {}
  for _, id in ipairs(call('ZRANGEBYSCORE', key('leases'), '-inf', now, 'LIMIT', 0, limit)) do
    reaped[#reaped + 1] = lapse(id, max_attempts)
  end
  trim(limit)
  return reaped
end

-- Arguments after the limit: model, number of its messages in the broker, … An empty broker makes young hints due too.
-- Parked messages count as if they were there.
function VERBS.stale_hints(limit, ...)
  local args, depth, hints = {...}, {}, {}
  local due = call('ZRANGEBYSCORE', key('hints'), '-inf', now, 'LIMIT', 0, limit)
  for at = 1, #args, 2 do
    depth[args[at]] = tonumber(args[at + 1]) + Turns.num_parked(args[at])
    hints[#hints + 1] = Turns.wake(args[at])
    if args[at + 1] == '0' then
      for _, id in ipairs(call('ZRANGE', key('queue', args[at]), 0, limit - 1)) do due[#due + 1] = id end
    end
  end
  for _, id in ipairs(due) do
    if #hints >= tonumber(limit) then break end
    hints[#hints + 1] = hint(id, depth)
  end
  return hints
end

VERBS.models = function() return call('HKEYS', key('pace')) end

-- For each model: {model, queued, running, priority, queued, oldest_ms, …} with those priorities that wait, 9 first.
function VERBS.queues(...)
  local replies = {}
  for _, model in ipairs({...}) do
    local queue = key('queue', model)
    local reply = {model, call('ZCARD', queue), call('ZCARD', key('running', model))}
    for rank = 0, reply[2] > 0 and 9 or -1 do
      local from, to = rank * 2 ^ 40, '(' .. (rank + 1) * 2 ^ 40
      local first = call('ZRANGEBYSCORE', queue, from, to, 'LIMIT', 0, 1)[1]
      local created = first and tonumber(call('HGET', key('job', first), 'created'))
      if created then
        for _, figure in ipairs({9 - rank, call('ZCOUNT', queue, from, to), math.max(0, now - created)}) do
          reply[#reply + 1] = figure
        end
      end
    end
    replies[#replies + 1] = reply
  end
  return replies
end
