-- What the code of functions writes and throws is sealed: with the key of the run's connection, else with the environment's.
-- runs with: 0033

-- Beside an empty message. Services before this one show the empty message; lines that they write are plain text, and go with
-- their run.
alter table run_line add column sealed bytea;

alter table operation_message add column sealed bytea;
-- The row of the connection whose key it was; null: the environment's. No reference: the connection may go before the day.
alter table operation_message add column connection_id bigint;
