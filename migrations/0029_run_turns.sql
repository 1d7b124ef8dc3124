-- When a sync began last is told by its runs. Written at each claim, it made whoever claims a run wait for whoever triggers it.
alter table sync drop column last_started_at;
