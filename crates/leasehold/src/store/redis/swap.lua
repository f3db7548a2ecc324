-- Writes or deletes each record whose version still matches; a write that conflicts returns the current record.
-- KEYS: one hash for each write. ARGV: prefix of all keys, mark of the writer or "" to publish no changes, the number
-- of the writer's own subscribers, "wait" if a WAIT follows or "", then for each write:
--   expected write id or "", state of that version or "", new write id or "" to delete, record, number of following
--   values: optional fields, each with its value, `state` and `state_since` first.
-- Returns the time, and number and hash of each conflicting record.
local call = redis.call
local prefix, mark, own = ARGV[1], ARGV[2], tonumber(ARGV[3])
local answer, changed, at, wrote = call('TIME'), {}, 5, false
if mark ~= '' and call('PUBSUB', 'NUMSUB', prefix .. ':changes')[2] <= own then
    mark = ''
end

-- Returns a key without the prefix: kind and name.
local function rest(key)
    return string.sub(key, #prefix + 2)
end

-- Updates the sorted sets that a record belongs to.
local function index(key, is_new, id, old_state, state, since)
    local kind, name = string.match(rest(key), '^(%a+):(.*)$')
    if id == '' then
        call('ZREM', prefix .. ':names:' .. kind, name)
    elseif is_new then
        call('ZADD', prefix .. ':names:' .. kind, 0, name)
    end
    if old_state ~= '' and old_state ~= state then
        call('ZREM', prefix .. ':state:' .. kind .. ':' .. old_state, name)
    end
    if state then
        call('ZADD', prefix .. ':state:' .. kind .. ':' .. state, since, name)
    end
end

for number, key in ipairs(KEYS) do
    local expected, old_state, id, more = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 4])
    if (call('HGET', key, 'write') or '') ~= expected then
        answer[#answer + 1] = number
        answer[#answer + 1] = call('HGETALL', key)
    else
        wrote = true
        local state = more > 0 and ARGV[at + 5] == 'state' and ARGV[at + 6]
        if id == '' then
            call('DEL', key)
        else
            if old_state ~= '' and not state then
                call('HDEL', key, 'state', 'state_since')
            end
            call('HSET', key, 'write', id, 'record', ARGV[at + 3])
            if more > 0 then
                call('HSET', key, unpack(ARGV, at + 5, at + 4 + more))
            end
        end
        if id == '' or expected == '' or old_state ~= '' or state then
            index(key, expected == '', id, old_state, state, ARGV[at + 8])
        end
        if mark ~= '' then
            changed[#changed + 1] = rest(key)
        end
    end
    at = at + 5 + more
end
-- A replica refuses both commands, so only a primary reports a conflict. WAIT counts only this connection's own last
-- write.
if not wrote then
    if ARGV[4] == 'wait' then
        call('HSET', prefix .. ':probe', 'write', '1')
    else
        call('HDEL', prefix .. ':probe', 'none')
    end
end
if changed[1] then
    -- Publishing is optional: the writes remain even if the user lacks the right.
    redis.pcall('PUBLISH', prefix .. ':changes', mark .. '\n' .. table.concat(changed, '\n'))
end
return answer
