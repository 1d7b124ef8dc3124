alter table dataset
  -- Whether a change keeps the payload that stood before it, until the next one.
  add column keep_previous boolean not null default false;

alter table payload
  -- What stood before the last change, sealed as `body` is: the former payload, a JSON object, or only the names of the
  -- fields that changed, an array. Null where nothing is known of it.
  add column previous bytea;
alter table payload alter column previous set storage external;
