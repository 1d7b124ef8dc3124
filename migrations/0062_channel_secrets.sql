-- The secret with which messages of a channel are verified, sealed with the connection's data key.
-- runs with: 0033

alter table channel add column secret bytea;
