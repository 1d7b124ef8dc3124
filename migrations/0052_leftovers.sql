-- Datasets that were emptied, and whose former rows are not all removed yet.
-- runs with: 0033

-- Rows up to `emptied_seq` no longer belong to the dataset. Steps of bounded length remove them.
alter table dataset add column has_leftovers boolean not null default false;
