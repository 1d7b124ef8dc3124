-- Where a dataset was emptied, so that a reader who holds what stood there can be told.
-- runs with: 0033

-- The last position that a record had had then: a cursor up to it stands among records that went without tombstones.
-- 0: never emptied since this column is there.
alter table dataset add column emptied_seq bigint not null default 0;
