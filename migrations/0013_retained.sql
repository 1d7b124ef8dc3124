-- What retention has let go in a dataset and has not told of yet: a run that was killed leaves that to the next one.
create table retained (
  environment_id bigint not null references environment on delete cascade,
  dataset_id bigint not null,
  payloads bigint not null,
  bytes bigint not null,
  tombstones bigint not null,
  constraint retained_pkey primary key (environment_id, dataset_id)
);
