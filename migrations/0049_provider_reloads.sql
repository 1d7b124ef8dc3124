-- Requests of operators that each node reads its provider definitions again.
-- runs with: 0033

-- A node answers the last request of its row: `reload_fault` is why it kept its previous definitions.
alter table node add column reload_request uuid;
alter table node add column reload_answer uuid;
alter table node add column reload_fault text;
