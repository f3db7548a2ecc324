-- Finds a page of records. KEYS: the sorted set of names or of a state. ARGV: prefix of all keys, kind, prefix of the
-- name, "name" or "state", cursor's since, cursor's name, limit, least held_until, most held_until, "wait" if a WAIT
-- follows or "".
-- Returns the time, the cursor ("" at the end, else since and name), and name and hash of each record, one after
-- another.
local all, kind, prefix, order = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local after_since, after_name = ARGV[5], ARGV[6]
local limit, least, most = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
-- A replica, whose records may be outdated, refuses both commands. WAIT counts only this connection's own last write.
if ARGV[10] == 'wait' then
    redis.call('HSET', all .. ':probe', 'write', '1')
else
    redis.call('HDEL', all .. ':probe', 'none')
end
local time = redis.call('TIME')
local found = { time[1], time[2], '', '' }
-- The maximum number of members to examine in one call, because other clients wait meanwhile.
local budget, offset, records = 5000, 0, 0

local function chunk()
    if order == 'state' then
        local from = after_since == '' and '-inf' or after_since
        return redis.call('ZRANGEBYSCORE', KEYS[1], from, '+inf', 'WITHSCORES', 'LIMIT', offset, 100)
    end
    local from = after_name == '' and '[' .. prefix or '(' .. after_name
    if prefix ~= '' and after_name ~= '' and after_name < prefix then
        from = '[' .. prefix
    end
    local to = prefix == '' and '+' or '(' .. prefix .. '\255'
    return redis.call('ZRANGEBYLEX', KEYS[1], from, to, 'LIMIT', offset, 100)
end

while true do
    local members = chunk()
    local step = order == 'state' and 2 or 1
    if #members == 0 then
        return found
    end
    for index = 1, #members, step do
        local name, since = members[index], members[index + 1]
        offset, budget = offset + 1, budget - 1
        local passed = order == 'state' and after_since ~= ''
            and tonumber(since) == tonumber(after_since) and name <= after_name
        if not passed and string.sub(name, 1, #prefix) == prefix then
            local key = all .. ':' .. kind .. ':' .. name
            local record = redis.call('HGET', key, 'record') or ''
            local held = tonumber(string.match(record, '^{"held_until":(%d+),') or '-1')
            if held >= least and held <= most then
                records = records + 1
                found[#found + 1] = name
                found[#found + 1] = redis.call('HGETALL', key)
            end
        end
        if (records >= limit or budget <= 0) and not passed then
            found[3], found[4] = order == 'state' and since or '', name
            return found
        end
    end
end
