-- Writes or deletes each record whose version still matches; a loser gets the current record back.
-- KEYS: one hash for each write. ARGV: prefix of all keys, who writes if subscribers are to be told or "", how many of the
-- subscribers are the writer's own, then for each write:
--   expected write id or "", new write id or "" to delete, record, how many values follow, and these: fields that few
--   records have, each with its value, `state` and `state_since` first.
-- Returns the time, and of each loser its number and hash.
local prefix, writer, own = ARGV[1], ARGV[2], tonumber(ARGV[3])
local answer, told, at = redis.call('TIME'), {}, 4
if writer ~= '' and redis.call('PUBSUB', 'NUMSUB', prefix .. ':changes')[2] <= own then
    writer = ''
end

-- A key without the prefix: kind and name.
local function rest(key)
    return string.sub(key, #prefix + 2)
end

-- The sorted sets that a record is in.
local function index(key, is_new, id, old_state, state, since)
    local kind, name = string.match(rest(key), '^(%a+):(.*)$')
    if id == '' then
        redis.call('ZREM', prefix .. ':names:' .. kind, name)
    elseif is_new then
        redis.call('ZADD', prefix .. ':names:' .. kind, 0, name)
    end
    if old_state and old_state ~= '' and old_state ~= state then
        redis.call('ZREM', prefix .. ':state:' .. kind .. ':' .. old_state, name)
    end
    if state then
        redis.call('ZADD', prefix .. ':state:' .. kind .. ':' .. state, since, name)
    end
end

for number, key in ipairs(KEYS) do
    local id, more = ARGV[at + 1], tonumber(ARGV[at + 3])
    local found = redis.call('HMGET', key, 'write', 'state')
    local old_state = found[2]
    if (found[1] or '') ~= ARGV[at] then
        answer[#answer + 1] = number
        answer[#answer + 1] = redis.call('HGETALL', key)
    else
        local state = more > 0 and ARGV[at + 4] == 'state' and ARGV[at + 5]
        if id == '' then
            redis.call('DEL', key)
        else
            if old_state and not state then
                redis.call('HDEL', key, 'state', 'state_since')
            end
            redis.call('HSET', key, 'write', id, 'record', ARGV[at + 2], unpack(ARGV, at + 4, at + 3 + more))
        end
        if id == '' or not found[1] or old_state or state then
            index(key, not found[1], id, old_state, state, ARGV[at + 7])
        end
        if writer ~= '' then
            told[#told + 1] = rest(key)
        end
    end
    at = at + 4 + more
end
if told[1] then
    redis.call('PUBLISH', prefix .. ':changes', writer .. '\n' .. table.concat(told, '\n'))
end
return answer
