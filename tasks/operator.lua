-- The last part of the script of `store.lua`: workers, dead letters, litter. Its functions and its table of keys hold
-- here too.

-- After the time to live: model, how fast the worker serves it ('' for one that takes no jobs), …
function VERBS.beat(worker, info, ttl_ms, ...)
  local args, ends = {...}, now + tonumber(ttl_ms)
  call('SET', key('worker', worker), info, 'PX', ttl_ms)
  call('ZADD', key('workers'), ends, worker)
  call('ZREMRANGEBYSCORE', key('workers'), '-inf', now)
  for at = 1, #args, 2 do
    local speeds = key('speeds', args[at])
    call('HDEL', speeds, worker)
    local known = call('HGETALL', speeds)
    for entry = 1, #known, 2 do
      if tonumber(string.match(known[entry + 1], '^%d+')) <= now then call('HDEL', speeds, known[entry]) end
    end
    if args[at + 1] ~= '' then
      call('HSET', speeds, worker, string.format('%.0f', ends) .. ' ' .. args[at + 1])
      call('PEXPIRE', speeds, ttl_ms)
    end
  end
  return call('EXISTS', key('drain', worker))
end

function VERBS.leave(worker)
  call('DEL', key('worker', worker), key('drain', worker))
  call('ZREM', key('workers'), worker)
end

-- `node`: a worker's whole name, or what stands before its process id and incarnation; '' stands for all.
function VERBS.drain(node)
  local asked, live = {}, call('ZRANGEBYSCORE', key('workers'), '(' .. now, '+inf')
  for _, worker in ipairs(live) do
    if node == '' or worker == node or string.match(worker, '^(.+):%d+:%x+$') == node then
      call('SET', key('drain', worker), now, 'PX', DRAIN_TTL)
      asked[#asked + 1] = worker
    end
  end
  return {asked, live}
end

-- {what it says of itself, ms until it is given up}, …
function VERBS.workers()
  local told, live = {}, call('ZRANGEBYSCORE', key('workers'), '(' .. now, '+inf', 'WITHSCORES')
  for at = 1, #live, 2 do
    local info = call('GET', key('worker', live[at]))
    if info then told[#told + 1] = {info, live[at + 1] - now} end
  end
  return told
end

-- A job, whether its abort is wanted, what the live workers say of themselves, and who holds it up; or nil.
function VERBS.explain(id)
  local found = snapshot(id)
  return found and {found, abort_wanted(id) and 1 or 0, VERBS.workers(), Turns.held_by(id)}
end

function VERBS.tally()
  local backlog, given_up = call('ZCARD', key('webhooks')), call('ZCARD', key('webhooks_dead'))
  return {call('HGETALL', key('counters')), backlog, given_up, call('ZCARD', key('dead'))}
end

function VERBS.dead_letters(limit) return call('ZREVRANGE', key('dead'), 0, limit - 1) end

function VERBS.drop_dead_letters(...)
  local dropped = 0
  for _, id in ipairs({...}) do dropped = dropped + settle_letter(id) end
  return dropped
end

-- nil: its record was evicted.
local function is_such_a_letter(id, model, error_type)
  local its_model, error = unpack(call('HMGET', key('job', id), 'model', 'error'))
  if not its_model then return nil end
  return (model == '' or its_model == model) and (error_type == '' or error and cjson.decode(error).type == error_type)
end

-- Cursor of the next page or '', {{died, snapshot}, …} newest first, ids without a record.
local function find_letters(model, error_type, newest, oldest, limit, seen_died, seen_id)
  local found, gone, last = {}, {}, ''
  for round = 0, 19 do
    local entries = call('ZREVRANGEBYSCORE', key('dead'), newest, oldest, 'WITHSCORES', 'LIMIT', 100 * round, 100)
    for at = 1, #entries, 2 do
      local id, died = entries[at], entries[at + 1]
      if died ~= seen_died or Turns.comes_before(id, seen_id) then
        if #found == limit then return last, found, gone end
        last = died .. '-' .. id
        local wanted = is_such_a_letter(id, model, error_type)
        if wanted then found[#found + 1] = {died, snapshot(id)} end
        if wanted == nil then gone[#gone + 1] = id end
      end
    end
    if #entries < 200 then return '', found, gone end
  end
  return last, found, gone
end

-- Ages in ms, '' for any; `cursor`: of the page before, or ''.
function VERBS.letters(model, error_type, min_age, max_age, limit, cursor)
  local newest = min_age ~= '' and now - tonumber(min_age) or '+inf'
  local oldest = max_age ~= '' and now - tonumber(max_age) or '-inf'
  local seen_died, seen_id = string.match(cursor, '^(%d+)-(.+)$')
  if seen_died and (newest == '+inf' or tonumber(seen_died) < newest) then newest = seen_died end
  local last, found, gone = find_letters(model, error_type, newest, oldest, tonumber(limit), seen_died, seen_id)
  for _, id in ipairs(gone) do call('ZREM', key('dead'), id) end
  return {last, found}
end

-- {died, snapshot, faults}, or nil.
function VERBS.letter(id)
  local died = call('ZSCORE', key('dead'), id)
  local record = died and snapshot(id)
  return record and {died, record, call('LRANGE', key('faults', id), 0, -1)}
end

-- Lends ids whose checkpoint is to be deleted, if there is one; they come again after `lease_ms` unless `swept`.
function VERBS.litter(limit, lease_ms)
  local ids = call('ZRANGEBYSCORE', key('litter'), '-inf', now, 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do call('ZADD', key('litter'), now + tonumber(lease_ms), id) end
  return ids
end

function VERBS.swept(...) return call('ZREM', key('litter'), ...) end

local reply = VERBS[verb](unpack(ARGV, 7))
if Turns.is_miscounted then Turns.recount() end
return reply
