-- The announced ends of provider features that an event has reported, by their day.
-- runs with: 0033

alter table integration add column reported_sunsets text[] not null default '{}';
