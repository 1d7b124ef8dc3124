-- Which connections a node refreshes, so that a node which takes over a lease does not send while the answer is being stored.
-- runs with: 0033

-- Rows of connections. Nodes of earlier versions leave it empty.
alter table node add column refreshing bigint[] not null default '{}';
-- Since then the node has renewed its row without a gap.
alter table node add column reachable_since timestamptz not null default clock_timestamp();
