do
    local guard, fence = table.remove(KEYS), table.remove(ARGV)
    if tonumber(fence) < tonumber(redis.call('GET', guard) or '0') then
        return redis.error_reply('FENCED a higher fence was written before: nothing was written')
    end
    redis.call('SET', guard, fence)
end
