-- Channels that lead to an address of before, and runs of which there are few among many.

-- Where the provider was told to send; null of those from before it was noted. Another one is asked for where it is not the
-- address that there is.
alter table channel add column address text;

create index run_of_webhook on run (function_id, id desc) where kind = 'webhook';
create index run_cancelled on run (function_id, id desc) where state = 'cancelled';
