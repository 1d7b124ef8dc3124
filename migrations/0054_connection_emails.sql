-- Connections are found by the e-mail address of their account or end user.
-- runs with: 0033
-- outside a transaction

drop index concurrently if exists connection_account_email;

create index concurrently connection_account_email
on connection (environment_id, lower(account_email))
where account_email is not null and deleted_at is null;

drop index concurrently if exists connection_end_user_email;

create index concurrently connection_end_user_email
on connection (environment_id, lower(end_user ->> 'email'))
where end_user ->> 'email' is not null and deleted_at is null;
