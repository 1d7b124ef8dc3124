-- Which OAuth client a connection brought along, so that those whose grants end together are found without opening them.
-- runs with: 0033

-- Written with the credentials; the ID of a client is no secret. Null beside `has_own_client`: it is not known.
alter table connection add column own_client_id text;
