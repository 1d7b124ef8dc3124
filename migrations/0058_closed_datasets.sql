-- Datasets of deleted connections.
-- runs with: 0033

-- The transaction that deletes a connection sets it, and each write reads it under the lock of the dataset's row. So that
-- lock alone keeps records from being written after their key is destroyed. Services without this column delete connections
-- too, so a write also locks the connection's row (`lockForWrite`). A release that does not run with 0057 removes that lock.
alter table dataset add column closed boolean not null default false;
