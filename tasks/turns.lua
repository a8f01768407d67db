-- The part of the script of `store.lua` about turns: whose job is claimed next, and who is at a limit. Its functions and
-- its table of keys hold here too. docs/decisions/0006-a-hint-is-a-turn.md says why.

local MAX_LOOK, MAX_TENANTS_SEEN, TURN_TTL = 200, 100, 300000
local PRIORITY_WORTH, STAMPS_PER_MS = 60000, 1024 -- ms that a level of priority is worth

local function line_of(model, tenant) return key('line', model .. ':' .. tenant) end
local function number(text) return tonumber(text or 0) end

-- {weight, max_queued_rows, max_running_rows} with 0 for no limit. ARGV[6]: see tasks/quotas.py.
local quotas
local function quota(kind, name)
  if not ARGV[6] or ARGV[6] == '' then return {1, 0, 0} end
  quotas = quotas or cjson.decode(ARGV[6])
  if kind == 'group' then return quotas.groups end
  return quotas.tenants[name] or quotas.default
end

-- A number for each job that only grows, whatever the clock does: by it, jobs are older or younger.
function Turns.stamp()
  local stamp = math.max(now * STAMPS_PER_MS, number(call('GET', key('stamp'))) + 1)
  call('SET', key('stamp'), stamp)
  return stamp
end

local function owners(job)
  local found = {{'tenant', job.tenant}}
  if job.group then found[2] = {'group', job.group} end
  return found
end

local function rows_of(status, kind, name) return number(call('HGET', key('rows:' .. status, kind), name)) end

function Turns.book(job, status, rows)
  for _, owner in ipairs(owners(job)) do
    local book = key('rows:' .. status, owner[1])
    if call('HINCRBY', book, owner[2], rows) <= 0 then call('HDEL', book, owner[2]) end
  end
end

-- After a record was lost with what it counted.
function Turns.recount()
  for _, status in ipairs({'queued', 'running'}) do
    call('DEL', key('rows:' .. status, 'tenant'), key('rows:' .. status, 'group'))
    for _, id in ipairs(call('ZRANGE', key('status', status), 0, -1)) do
      local job = load(id)
      if job then Turns.book(job, status, job.rows) end
    end
  end
end

local function stand_in_line(job)
  local model, tenant, turns = job.model, job.tenant, key('turns', job.model)
  call('ZADD', line_of(model, tenant), job.stamp - job.priority * PRIORITY_WORTH * STAMPS_PER_MS, job.id)
  if call('ZSCORE', turns, tenant) then return end
  local rested = key('rested', model)
  local tag = math.max(number(call('HGET', key('clock'), model)), number(call('ZSCORE', rested, tenant)))
  call('ZREM', rested, tenant)
  call('ZADD', turns, tag, tenant)
end

function Turns.enter(job)
  Turns.book(job, 'queued', job.rows)
  stand_in_line(job)
end

-- A tenant whose line is empty keeps its tag as long as that is ahead of the clock; with the last line all is forgotten.
local function leave_line(model, tenant, id)
  local turns, rested = key('turns', model), key('rested', model)
  if call('ZREM', line_of(model, tenant), id) == 0 or call('EXISTS', line_of(model, tenant)) == 1 then return end
  local tag = number(call('ZSCORE', turns, tenant))
  call('ZREM', turns, tenant)
  if call('ZCARD', turns) == 0 then
    call('HDEL', key('clock'), model)
    call('DEL', rested)
  elseif tag > number(call('HGET', key('clock'), model)) then
    call('ZADD', rested, tag, tenant)
  end
end

function Turns.leave(job)
  Turns.book(job, 'queued', -job.rows)
  leave_line(job.model, job.tenant, job.id)
end

-- A job without a record, and so without a tenant.
function Turns.drop(model, id)
  Turns.is_miscounted = true
  for _, tenant in ipairs(call('ZRANGE', key('turns', model), 0, -1)) do leave_line(model, tenant, id) end
end

-- Start-time fair queueing: the clock is the tag of the job that starts, and its tenant's next one starts later by
-- rows / weight.
function Turns.charge(job)
  local turns, tag = key('turns', job.model), call('ZSCORE', key('turns', job.model), job.tenant)
  if not tag then return end
  local clock = math.max(number(call('HGET', key('clock'), job.model)), number(tag))
  call('HSET', key('clock'), job.model, clock)
  call('ZADD', turns, number(tag) + job.rows / quota('tenant', job.tenant)[1], job.tenant)
  call('ZREMRANGEBYSCORE', key('rested', job.model), '-inf', clock)
end

-- By bytes, as a zset orders equal scores; Lua's own comparison follows the server's locale.
function Turns.comes_before(left, right)
  for at = 1, math.min(#left, #right) do
    local one, other = string.byte(left, at), string.byte(right, at)
    if one ~= other then return one < other end
  end
  return #left < #right
end

-- {tenant, tag, weight, length of its line} of the first that wait; kept in `facts` of a call that changes no line but that
-- of the tenant who asks.
local function first_tenants(model, facts)
  if facts.tenants then return facts.tenants end
  local entries, found = call('ZRANGE', key('turns', model), 0, MAX_TENANTS_SEEN - 1, 'WITHSCORES'), {}
  for at = 1, #entries, 2 do
    found[#found + 1] = {entries[at], number(entries[at + 1]), quota('tenant', entries[at])[1], false}
  end
  facts.tenants = found
  return found
end

-- How many jobs go first, if each had one row and nobody a limit: exact for one tenant, else an estimate.
function Turns.position(id, model, tenant, facts)
  local rank = call('ZRANK', line_of(model, tenant), id)
  if not rank then return call('ZRANK', key('queue', model), id) or -1 end
  local tenants = first_tenants(model, facts)
  if #tenants < 2 then return rank end
  local tag = call('ZSCORE', key('turns', model), tenant)
  local start, ahead = number(tag) + rank / quota('tenant', tenant)[1], rank
  for _, other in ipairs(tenants) do
    local name, turns_before = other[1], (start - other[2]) * other[3]
    if name ~= tenant and turns_before >= 0 then
      turns_before = Turns.comes_before(name, tenant) and math.floor(turns_before) + 1 or math.ceil(turns_before)
      other[4] = other[4] or call('ZCARD', line_of(model, name))
      ahead = ahead + math.min(turns_before, other[4])
    end
  end
  return ahead
end

-- Why a new job is refused: {code, kind, name, limit}, or nil.
function Turns.refusal(job, supersedes)
  for _, owner in ipairs(owners(job)) do
    local kind, name = unpack(owner)
    local _, max_queued, max_running = unpack(quota(kind, name))
    for _, max in ipairs({max_queued, max_running}) do
      if max > 0 and job.rows > max then return {'too large', kind, name, max} end
    end
    local queued = kind == 'group' and supersedes and 0 or rows_of('queued', kind, name)
    if max_queued > 0 and queued + job.rows > max_queued then return {'over', kind, name, max_queued} end
  end
end

-- Who has nothing running may start a job of any size: a limit that was lowered must not keep it for ever.
local function is_over(kind, name, rows)
  local max = quota(kind, name)[3]
  if max == 0 then return false end
  local running = rows_of('running', kind, name)
  return running > 0 and running + rows > max
end

-- {kind, name, rows that run, limit} of whoever keeps a queued job waiting; else empty.
function Turns.held_by(id)
  local job = load(id)
  for _, owner in ipairs(job.status == 'queued' and owners(job) or {}) do
    local kind, name = unpack(owner)
    if is_over(kind, name, job.rows) then return {kind, name, rows_of('running', kind, name), quota(kind, name)[3]} end
  end
  return {}
end

-- The job if it waits; one that should not run at all ends here.
local function waiting(id, line)
  local job = load(id)
  if not job then
    erase(id)
  elseif job.status ~= 'queued' then
    call('ZREM', line, id)
  elseif abort_wanted(id) then
    move(job, 'aborted')
  elseif is_late(job) then
    fail_late(job)
  else
    return job
  end
end

-- The first job of the line that may run, or nil. Smaller jobs never overtake the one that its tenant's or group's limit
-- holds up; jobs of other groups do.
local function next_of(model, tenant)
  local line, at, shut = line_of(model, tenant), 0, {}
  for _ = 1, MAX_LOOK do
    local id = call('ZRANGE', line, at, at)[1]
    if not id then return nil end
    local job = waiting(id, line)
    if job and is_over('tenant', tenant, job.rows) then return nil end
    if job and not (job.group and (shut[job.group] or is_over('group', job.group, job.rows))) then return job end
    if job then
      shut[job.group] = true
      at = at + 1
    end
  end
end

-- The model's next job and the tenants that were passed over, or nil and why: idle (nobody waits), blocked (all who do
-- are at a limit).
local function pick(model)
  local turns, passed = key('turns', model), {}
  while true do
    local tenant = call('ZRANGE', turns, #passed, #passed)[1]
    if not tenant then return nil, #passed > 0 and 'blocked' or 'idle' end
    local job = next_of(model, tenant)
    if job then return job, passed end
    if call('ZSCORE', turns, tenant) then passed[#passed + 1] = tenant end
  end
end

-- Those at a limit save up nothing meanwhile.
local function lift(job, passed)
  local turns = key('turns', job.model)
  local tag = call('ZSCORE', turns, job.tenant)
  for _, tenant in ipairs(passed) do call('ZADD', turns, tag, tenant) end
end

-- A message whose turn found all at their limits: as good as in the broker, until `wake` sends it again.
local function park(model)
  local num_parked = math.min(number(call('HGET', key('parked'), model)) + 1, call('ZCARD', key('queue', model)))
  call('HSET', key('parked'), model, num_parked)
end

function Turns.num_parked(model) return number(call('HGET', key('parked'), model)) end

-- {id, model, priority} of a message in place of a parked one, if a job may run now; or nil.
function Turns.wake(model)
  local num_parked = math.min(Turns.num_parked(model), call('ZCARD', key('queue', model)))
  local job = num_parked > 0 and pick(model)
  if job then num_parked = num_parked - 1 end
  if num_parked > 0 then call('HSET', key('parked'), model, num_parked) else call('HDEL', key('parked'), model) end
  return job and {job.id, model, job.priority} or nil
end

function VERBS.wake()
  local hints = {}
  for _, model in ipairs(call('HKEYS', key('parked'))) do hints[#hints + 1] = Turns.wake(model) end
  return hints
end

-- `hint`: the id in the message. The claimed job may be any other of the model. A token that came before is answered alike.
function VERBS.take(model, hint, worker, lease_ms, token)
  local earlier = call('GET', key('turn', token))
  local job = load(earlier or hint)
  if job and job.status == 'running' and job.token == token then return claimed(job) end
  if earlier then return {'leased'} end
  -- Queued by a release that had no lines.
  if job and job.status == 'queued' and not call('ZSCORE', line_of(job.model, job.tenant), hint) then stand_in_line(job) end
  local found, passed = pick(model)
  if not found then
    if passed == 'blocked' then park(model) end
    return {passed}
  end
  lift(found, passed)
  if found.id ~= hint then call('SET', key('turn', token), found.id, 'PX', TURN_TTL) end
  return start(found, worker, lease_ms, token)
end

-- Rows of each tenant that has some: queued, running; name, rows, …
function VERBS.tenants()
  return {call('HGETALL', key('rows:queued', 'tenant')), call('HGETALL', key('rows:running', 'tenant'))}
end
