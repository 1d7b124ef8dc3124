-- Whether a connection was never tried, and whether it lacks scopes, so that lists find these connections.
-- runs with: 0033

alter table connection
  -- Stored without a proof that the provider accepts the credentials, and not used or refreshed since.
  add column is_unverified boolean not null default false,
  -- As health has it by the provider's definition, at the last connect, refresh or response of the API.
  add column lacks_scopes boolean not null default false;
