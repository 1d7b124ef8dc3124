-- Endpoints that get alerts: short texts for people, instead of events for a program.
-- runs with: 0033

-- `standard`: the event as JSON. `slack`: `{"text"}`. `email`: a mail; then `url` is a `mailto:` address.
alter table endpoint
  add column format text not null default 'standard'
    constraint endpoint_format check (format in ('standard', 'slack', 'email'));
