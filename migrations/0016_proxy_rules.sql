-- What calls of the proxy a key may make, and what calls an integration takes: [{effect, methods, path}, ...].
alter table api_key add column proxy_rules jsonb not null default '[]';
alter table integration add column proxy_rules jsonb not null default '[]';
