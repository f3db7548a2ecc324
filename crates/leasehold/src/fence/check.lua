do
    local lease, fence = table.remove(KEYS), table.remove(ARGV)
    local holders = redis.call('HGET', lease, 'holders') or ''
    if not string.find(holders, '{"fence":' .. fence .. ',', 1, true) then
        return redis.error_reply('FENCED this fence does not hold the lease (any more): nothing was written')
    end
end
