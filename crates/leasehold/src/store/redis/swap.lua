-- Writes or deletes each record whose version still matches; a loser gets the current record back.
-- KEYS: one hash for each write. ARGV: prefix, who writes if subscribers are to be told or "", then 15 values for each write:
--   kind, name, expected write id or "", new write id or "" to delete, fence, held_until, owner, expires,
--   state, state_since, holders, last, next, put, "=" to keep the body or "+" and the new one
local prefix, writer = ARGV[1], ARGV[2]
local answers = redis.call('TIME')
for index, key in ipairs(KEYS) do
    local at = 3 + (index - 1) * 15
    local kind, name, expected, id = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local current = redis.call('HMGET', key, 'write', 'state')
    local write, old_state = current[1] or '', current[2] or ''
    if write ~= expected then
        answers[index + 2] = redis.call('HGETALL', key)
    else
        local state = id ~= '' and ARGV[at + 8] or ''
        if id == '' then
            redis.call('DEL', key)
            redis.call('ZREM', prefix .. ':names:' .. kind, name)
        else
            redis.call('HSET', key, 'write', id, 'fence', ARGV[at + 4], 'held_until', ARGV[at + 5],
                'owner', ARGV[at + 6], 'expires', ARGV[at + 7], 'state', state, 'state_since', ARGV[at + 9],
                'holders', ARGV[at + 10], 'last', ARGV[at + 11], 'next', ARGV[at + 12], 'put', ARGV[at + 13])
            local body = ARGV[at + 14]
            if string.sub(body, 1, 1) == '+' then
                redis.call('HSET', key, 'body', string.sub(body, 2))
            end
            if write == '' then
                redis.call('ZADD', prefix .. ':names:' .. kind, 0, name)
            end
        end
        if old_state ~= '' and old_state ~= state then
            redis.call('ZREM', prefix .. ':state:' .. kind .. ':' .. old_state, name)
        end
        if state ~= '' then
            redis.call('ZADD', prefix .. ':state:' .. kind .. ':' .. state, ARGV[at + 9], name)
        end
        if writer ~= '' then
            redis.call('PUBLISH', prefix .. ':changes', writer .. ':' .. kind .. ':' .. name)
        end
        answers[index + 2] = 'OK'
    end
end
return answers
