-- The appearance of an environment's connect page: font, corners, colors and texts; and the schemes of its deep links.
-- runs with: 0033

alter table connect_settings
  add column font text,
  -- Of buttons and fields, in pixels.
  add column radius smallint,
  add column light_background text,
  add column light_text text,
  add column dark_background text,
  add column dark_text text,
  -- By language, then by the key of the text.
  add column texts jsonb,
  -- Schemes of return_url other than http and https, in lower case.
  add column return_schemes text[];
