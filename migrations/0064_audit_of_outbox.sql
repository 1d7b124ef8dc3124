-- Each entry of a dataset is in the audit log once.
-- runs with: 0033
-- outside a transaction

drop index concurrently if exists audit_of_outbox;

create unique index concurrently audit_of_outbox on audit (outbox_id) where outbox_id is not null;
