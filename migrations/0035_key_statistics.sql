-- Wrapped data keys in no statistics: the planner keeps samples of a column's values there, and these outlive the rows.
-- runs with: 0033

-- safe: naming the type again changes none, writes no row, and drops the samples that were kept.
alter table data_key alter column wrapped type bytea;
alter table data_key alter column wrapped set statistics 0;
