-- Which key a consumer belongs to, and since when a consumer acknowledges one cursor while changes wait.
-- runs with: 0033

-- Of a key that replaces another one: the first of the keys that have replaced each other. Null: the key itself. All keys with the
-- same first key own the same consumers.
alter table api_key add column first_key_id bigint;

alter table consumer
  -- The first key of the keys that own it; null: no key does. Not a foreign key: keys are not in the dataset's shard.
  add column owner_key_id bigint,
  -- The first acknowledgement of the position `held_seq` while changes waited behind it. Of no meaning when `seq` is another position:
  -- services before 0044 move a consumer without it.
  add column held_seq bigint,
  add column held_since timestamptz;
