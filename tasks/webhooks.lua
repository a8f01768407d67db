-- KEYS: webhooks, webhook_tries, webhooks_dead, webhook_letters.  ARGV: verb, the verb's own. See webhook_queue.py.
local queue, tries, dead, letters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local MAX_DEAD = 10000
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local VERBS = {}

local function drop(id)
  call('HDEL', letters, id)
  return call('ZREM', dead, id)
end

local function enqueue(id)
  drop(id)
  return call('ZADD', queue, 'NX', now, id)
end

local function is_held(id, lease) return tonumber(call('ZSCORE', queue, id) or -1) == tonumber(lease) end

local function bury(id, letter, keep)
  call('ZREM', queue, id)
  call('HDEL', tries, id)
  call('ZADD', dead, now, id)
  call('HSET', letters, id, letter)
  for _, old in ipairs(call('ZRANGE', dead, 0, -MAX_DEAD - 1)) do drop(old) end
  for _, old in ipairs(call('ZRANGEBYSCORE', dead, '-inf', now - keep, 'LIMIT', 0, 100)) do drop(old) end
end

function VERBS.enqueue(id) return enqueue(id) end

function VERBS.lease(limit, lease_ms)
  local found = call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, limit)
  local ends = now + tonumber(lease_ms)
  for _, id in ipairs(found) do call('ZADD', queue, ends, id) end
  return {string.format('%.0f', ends), found}
end

function VERBS.done(id, lease)
  if not is_held(id, lease) then return 'lost' end
  call('ZREM', queue, id)
  call('HDEL', tries, id)
  return 'done'
end

-- `reason`: a JSON object. Without a further pause the delivery is dead.
function VERBS.fail(id, lease, reason, keep, ...)
  if not is_held(id, lease) then return 'lost' end
  local failures = call('HINCRBY', tries, id, 1)
  local pause = ({...})[failures]
  if pause then
    call('ZADD', queue, now + tonumber(pause), id)
    return 'again'
  end
  local letter = cjson.decode(reason)
  letter.tries = failures
  bury(id, cjson.encode(letter), tonumber(keep))
  return 'dead'
end

function VERBS.letters(limit)
  local entries, found = call('ZREVRANGE', dead, 0, limit - 1, 'WITHSCORES'), {}
  for at = 1, #entries, 2 do
    found[#found + 1] = {entries[at], entries[at + 1], call('HGET', letters, entries[at]) or '{}'}
  end
  return found
end

-- Those of the ids that were dead, and are due now.
function VERBS.revive(...)
  local revived = {}
  for _, id in ipairs({...}) do
    if call('ZSCORE', dead, id) then
      enqueue(id)
      revived[#revived + 1] = id
    end
  end
  return revived
end

function VERBS.drop(...)
  local dropped = 0
  for _, id in ipairs({...}) do dropped = dropped + drop(id) end
  return dropped
end

return VERBS[ARGV[1]](unpack(ARGV, 2))
