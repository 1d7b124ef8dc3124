-- Provider definitions of one environment, made at run time.
-- runs with: 0033

create table provider_definition (
  environment_id bigint not null references environment on delete cascade,
  -- Begins with own-, which no name of a shipped definition does.
  name text not null,
  -- As it was entered, YAML or JSON.
  text text not null,
  -- JSON with the order of its keys: the text with its base merged in.
  content text not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  primary key (environment_id, name)
);
