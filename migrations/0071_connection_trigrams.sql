-- A search for a part of a name uses an index.
-- runs with: 0033
-- outside a transaction

drop index concurrently if exists connection_name_trigrams;

-- Each search reads the list of pending entries. A shorter one is moved into the index more often.
create index concurrently connection_name_trigrams
on connection_name using gin (trigrams(names))
with (gin_pending_list_limit = 512);
