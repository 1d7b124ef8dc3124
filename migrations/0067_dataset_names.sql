-- Names of datasets.
-- runs with: 0033

-- The names as a relation of their own: a cluster distributes `dataset` by its id, and then the names are a table of the
-- coordinator (`trellis cluster distribute`). Services read and write both in the same way.
create view dataset_name as select id, connection, model, variant from dataset;
