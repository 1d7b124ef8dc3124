import { Select, type SelectProps } from '@mantine/core';

/** More are found by search; a list of thousands would block the page. */
const maxShown = 50;
const fewEnough = 8;

/** Selects an integration by its key. */
export function IntegrationSelect({
  integrations,
  others = [],
  ...select
}: {
  integrations: readonly { integration_id: string; display_name: string }[];
  /** Options in front of the integrations. */
  others?: { value: string; label: string }[];
} & Omit<SelectProps, 'data'>) {
  const names = new Set<string>();
  const namesakes = new Set<string>();
  for (const { display_name: name } of integrations) (names.has(name) ? namesakes : names).add(name);
  return (
    <Select
      searchable={integrations.length > fewEnough}
      limit={maxShown}
      nothingFoundMessage="No match"
      data={[
        ...others,
        ...integrations.map(({ integration_id: key, display_name: name }) => ({
          value: key,
          // Two clients of one provider have the same display name.
          label: namesakes.has(name) && name !== key ? `${name} (${key})` : name,
        })),
      ]}
      {...select}
    />
  );
}
