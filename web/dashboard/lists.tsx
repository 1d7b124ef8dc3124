import { Button, Group, Select, Text } from '@mantine/core';
import { type UseQueryResult, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { EmptyState } from '../ui/EmptyState.tsx';
import { FilterField } from '../ui/FilterField.tsx';
import { IconSearch } from '../ui/icons.tsx';
import { useFocusIfLost } from '../ui/use-focus-if-lost.ts';
import { IntegrationSelect } from './integrations/IntegrationSelect.tsx';
import { integrationsQuery } from './integrations/queries.ts';
import { ButtonLink } from './links.tsx';
import { useEnvironment } from './shell/environment.ts';

/** A filter of a list. Its value is in the address, under its name. */
export type Filter<S> = {
  name: keyof S & string;
  label: string;
  placeholder?: string;
  /** The values to select; without them, the filter is a text field. */
  options?: string[] | { value: string; label: string }[];
  /** The value of an address without the filter. It cannot be cleared. */
  byDefault?: string;
  isNumber?: boolean;
};

/**
 * The filters of a list. `'integration'` selects one of the environment's integrations; false filters are left out. An empty
 * list shows no filter, unless one is set.
 */
export function FilterBar<S extends object>({
  search,
  filters,
  isEmpty,
  onChange,
  children,
}: {
  search: S;
  filters: (Filter<S> | 'integration' | false)[];
  /** See `hasNoEntries`. */
  isEmpty: boolean;
  onChange: (next: Partial<S>) => void;
  children?: ReactNode;
}) {
  const currentOf = (name: string) => {
    const value = (search as Record<string, unknown>)[name];
    return value === undefined ? undefined : String(value);
  };
  const set = (name: string, value: unknown) => onChange({ [name]: value ?? undefined } as Partial<S>);
  const isSet = (filter: Filter<S> | 'integration' | false) =>
    filter !== false && currentOf(filter === 'integration' ? filter : filter.name) !== undefined;
  if (isEmpty && !filters.some(isSet)) return children ? <Group gap="xs">{children}</Group> : null;
  return (
    <Group gap="xs" align="flex-end" role="search" aria-label="Filters">
      {filters.map((filter) => {
        if (filter === false) return null;
        if (filter === 'integration') {
          const current = currentOf(filter) ?? null;
          return <IntegrationFilter key={filter} value={current} onChange={(next) => set(filter, next)} />;
        }
        const { name, label, options, byDefault, isNumber } = filter;
        const common = { 'aria-label': label, placeholder: filter.placeholder ?? label };
        if (options === undefined) {
          return (
            <FilterField
              key={name}
              {...common}
              flex={flexFor(common.placeholder)}
              maw={420}
              leftSection={<IconSearch size={16} />}
              value={currentOf(name)}
              onSettle={(next) => set(name, next)}
            />
          );
        }
        return (
          <Select
            key={name}
            {...common}
            flex={flexFor(common.placeholder)}
            maw={isNumber ? 420 : 240}
            clearable={byDefault === undefined}
            allowDeselect={byDefault === undefined}
            searchable={options.length > 8}
            data={options}
            value={currentOf(name) ?? byDefault ?? null}
            onChange={(next) => set(name, next === byDefault ? null : isNumber && next ? Number(next) : next)}
          />
        );
      })}
      {children}
    </Group>
  );
}

/** A field that wraps to the next line before its placeholder is cut off beside the icons. */
const flexFor = (placeholder: string) => `1 1 calc(${0.8 * Math.max(9, placeholder.length)}ch + 50px)`;

function IntegrationFilter(props: { value: string | null; onChange: (next: string | null) => void }) {
  const { data: integrations = [] } = useQuery(integrationsQuery(useEnvironment()));
  const placeholder = 'Every integration';
  return (
    <IntegrationSelect
      flex={flexFor(placeholder)}
      maw={240}
      aria-label="Integration"
      placeholder={placeholder}
      clearable
      integrations={integrations}
      {...props}
    />
  );
}

/** Whether the first page of a list was read and has no entry. The entries of a previous address do not count. */
export function hasNoEntries<T>(
  { data, isPlaceholderData }: Pick<UseQueryResult<T>, 'data' | 'isPlaceholderData'>,
  entriesOf: (data: T) => readonly unknown[],
): boolean {
  return data !== undefined && !isPlaceholderData && entriesOf(data).length === 0;
}

/** Says that a list shows a part of its items, and shows all. */
export function OnlySome({ what, onAll }: { what: string; onAll: () => void }) {
  return (
    <Group gap="xs">
      <Text size="sm">Only {what}.</Text>
      <Button size="compact-sm" variant="default" onClick={onAll}>
        Show all
      </Button>
    </Group>
  );
}

/** An empty list whose filters match nothing. */
export function NoMatch({
  icon,
  onClear,
  children,
}: {
  icon: ReactNode;
  onClear?: () => void;
  children: ReactNode;
}) {
  const clear = onClear && (
    <Button variant="default" onClick={onClear}>
      Show all
    </Button>
  );
  return (
    <EmptyState icon={icon} title="No match" action={clear}>
      {children}
    </EmptyState>
  );
}

/**
 * The buttons below a list that is read by a cursor: to its first page, and to the next one. The browser's Back leaves the
 * list, whichever of its pages is shown.
 */
export function CursorPager({
  onFirst,
  next,
  labels = ['To the newest', 'Older'],
}: {
  /** Undefined on the first page. */
  onFirst: (() => void) | undefined;
  /** What the address of the next page changes; undefined on the last page. */
  next: object | undefined;
  labels?: [first: string, next: string];
}) {
  // The last page has no button to the next one, and the first page none back.
  const buttons = useFocusIfLost<HTMLDivElement>(`${onFirst !== undefined} ${next !== undefined}`);
  return (
    <Group justify="space-between" ref={buttons} tabIndex={-1}>
      {onFirst === undefined ? (
        <span />
      ) : (
        <Button variant="default" onClick={onFirst}>
          {labels[0]}
        </Button>
      )}
      {next !== undefined && (
        <ButtonLink
          variant="default"
          to="."
          search={((former: object) => ({ ...former, ...next })) as never}
          replace
        >
          {labels[1]}
        </ButtonLink>
      )}
    </Group>
  );
}

/** The fields that are not undefined. */
export function defined<T extends object>(given: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const entries = Object.entries(given).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
