do
    local lease, fence = table.remove(KEYS), table.remove(ARGV)
    local record = redis.call('HGET', lease, 'record') or ''
    local _, holders = string.find(record, '"holders":[', 1, true)
    if not holders or not string.find(record, '{"fence":' .. fence .. ',', holders, true) then
        return redis.error_reply('FENCED this fence does not hold the lease (any more): nothing was written')
    end
end
