-- Which connections have an OAuth client of their own: what ails the integration's is no matter of theirs.
-- runs with: 0033

-- Written with the credentials, which say so too, but sealed. Of credentials that were stored before it is false.
alter table connection add column has_own_client boolean not null default false;
