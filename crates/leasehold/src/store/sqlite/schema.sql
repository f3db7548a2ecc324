-- The records. A row is found by kind and name or, if it is a work item, by state; a renewal changes no index. The
-- body comes last, so that a renewal of the same length leaves its pages unchanged.
create table records (
    id          integer primary key,
    kind        text    not null,
    name        text    not null,
    write       blob    not null,
    fence       integer not null,
    held_until  integer not null,
    state       text,
    state_since integer,
    holders     text    not null,
    last        text,
    next        text,
    put         text,
    body        text    not null,
    unique (kind, name)
) strict;

create index by_state on records (kind, state, state_since, name) where state is not null;

-- The boot clock that the store's time follows, the time's high-water mark, and when that clock replaced another one.
create table clock (
    boot_id        text    not null,
    time_namespace text    not null,
    epoch_us       integer not null,
    high_water_us  integer not null,
    restarted_us   integer
) strict;

-- The records in readable form. Times are the store's, in UTC.
create view leases as
select
    kind,
    name,
    fence,
    (select group_concat(value ->> '$.owner', ', ') from json_each(holders)) as owner,
    iif(json_type(holders, '$[0].mode') = 'object', 'shared', holders ->> '$[0].mode') as mode,
    strftime('%Y-%m-%d %H:%M:%f', (holders ->> '$[0].acquired_at') / 1000000.0, 'unixepoch') as acquired_at,
    strftime('%Y-%m-%d %H:%M:%f', nullif(held_until, 0) / 1000000.0, 'unixepoch') as expires_at,
    state,
    strftime('%Y-%m-%d %H:%M:%f', state_since / 1000000.0, 'unixepoch') as state_since,
    last ->> '$.owner' as last_owner,
    iif(json_type(last, '$.how') = 'object', 'completed', last ->> '$.how') as last_ended,
    strftime('%Y-%m-%d %H:%M:%f', (last ->> '$.at') / 1000000.0, 'unixepoch') as last_ended_at,
    body
from records;
