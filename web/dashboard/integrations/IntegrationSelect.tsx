import { Select, type SelectProps } from '@mantine/core';

/** More are found by typing; a drop-down of thousands stops the page. */
const maxShown = 50;
const fewEnough = 8;

/** One of the environment's integrations, by its key. */
export function IntegrationSelect({
  integrations,
  others = [],
  ...select
}: {
  integrations: readonly { unique_key: string; display_name: string }[];
  /** Choices that stand before them. */
  others?: { value: string; label: string }[];
} & Omit<SelectProps, 'data'>) {
  const names = new Set<string>();
  const namesakes = new Set<string>();
  for (const { display_name: name } of integrations) (names.has(name) ? namesakes : names).add(name);
  return (
    <Select
      searchable={integrations.length > fewEnough}
      limit={maxShown}
      nothingFoundMessage="No integration fits"
      data={[
        ...others,
        ...integrations.map(({ unique_key: key, display_name: name }) => ({
          value: key,
          // Two clients of one provider have the same name.
          label: namesakes.has(name) && name !== key ? `${name} (${key})` : name,
        })),
      ]}
      {...select}
    />
  );
}
