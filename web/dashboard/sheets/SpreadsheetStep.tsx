import { Button, Card, Group, Stack, Text, TextInput, Title } from '@mantine/core';
import { IconFilePlus, IconSearch } from '@tabler/icons-react';
import { useInfiniteQuery, useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { FilterField } from '../../ui/FilterField.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import type { At } from '../connections/queries.ts';
import { makeSampleSheet } from '../playground/queries.ts';
import { type ListedSpreadsheets, spreadsheetsQuery } from './queries.ts';
import { SheetFault } from './SheetFault.tsx';

/** Which spreadsheet: one of those that the account can see, or one by its link. */
export function SpreadsheetStep({
  environment,
  at,
  isTest,
  onChoose,
}: {
  environment: string;
  at: At;
  /** Of test credentials, whose account may have no spreadsheet yet. */
  isTest: boolean;
  onChoose: (spreadsheet: string) => void;
}) {
  const [search, setSearch] = useState<string>();
  const query = useInfiniteQuery(spreadsheetsQuery(environment, { at, search }));
  const [first] = query.data?.pages ?? [];
  const found = query.data?.pages.flatMap(({ spreadsheets }) => spreadsheets) ?? [];
  return (
    <Card component="section" aria-label="Spreadsheet">
      <Stack>
        <Title order={2}>Which spreadsheet?</Title>
        <LinkForm onChoose={onChoose} />
        {isTest && <Sample environment={environment} at={at} onChoose={onChoose} />}
        {first === undefined ? (
          query.isError ? (
            <SheetFault error={query.error} onRetry={() => void query.refetch()} />
          ) : (
            <LoadingRows rows={3} height={44} />
          )
        ) : first.available ? (
          <Stack gap="xs">
            <FilterField
              label="Or one of the account’s, those changed last first"
              {...(first.ownFilesOnly && {
                description: 'These are the files that were made or opened by this application alone.',
              })}
              placeholder="Title"
              leftSection={<IconSearch size={16} />}
              maw={420}
              value={search}
              onSettle={setSearch}
            />
            {query.isError && <SheetFault error={query.error} onRetry={() => void query.refetch()} />}
            <Spreadsheets found={found} isWaiting={query.isPlaceholderData} onChoose={onChoose} />
            {query.hasNextPage && (
              <Group>
                <Button
                  variant="default"
                  size="sm"
                  loading={query.isFetchingNextPage}
                  onClick={() => void query.fetchNextPage()}
                >
                  More
                </Button>
              </Group>
            )}
          </Stack>
        ) : (
          <Text size="sm" c="dimmed">
            This connection may not list the account’s files. To choose from a list, reconnect it with a scope
            such as <code>drive.metadata.readonly</code>.
          </Text>
        )}
      </Stack>
    </Card>
  );
}

function LinkForm({ onChoose }: { onChoose: (spreadsheet: string) => void }) {
  const [typed, setTyped] = useState('');
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (typed.trim() !== '') onChoose(typed.trim());
      }}
    >
      <Group align="flex-end" gap="xs">
        <TextInput
          label="Link or ID"
          description="As it stands in the browser while the spreadsheet is open"
          placeholder="https://docs.google.com/spreadsheets/d/…"
          flex="1 1 260px"
          data-autofocus
          value={typed}
          onChange={({ currentTarget: { value } }) => setTyped(value)}
        />
        <Button type="submit" disabled={typed.trim() === ''}>
          Open it
        </Button>
      </Group>
    </form>
  );
}

function Sample({
  environment,
  at,
  onChoose,
}: {
  environment: string;
  at: At;
  onChoose: (spreadsheet: string) => void;
}) {
  const make = useMutation({
    mutationFn: () => {
      const caller = { environment, integration: at.integration, connection: at.id };
      return makeSampleSheet(caller, new AbortController().signal);
    },
    onSuccess: onChoose,
  });
  return (
    <Stack gap="xs">
      <Group gap="xs">
        <Button
          variant="light"
          leftSection={<IconFilePlus size={16} />}
          loading={make.isPending}
          onClick={() => make.mutate()}
        >
          Make a small one to try
        </Button>
      </Group>
      {make.isError && <SheetFault error={make.error} onRetry={() => make.mutate()} />}
    </Stack>
  );
}

function Spreadsheets({
  found,
  isWaiting,
  onChoose,
}: {
  found: ListedSpreadsheets['spreadsheets'];
  isWaiting: boolean;
  onChoose: (spreadsheet: string) => void;
}) {
  if (found.length === 0) {
    return (
      <Text size="sm" c="dimmed" role="status">
        There is no such spreadsheet in the account.
      </Text>
    );
  }
  return (
    <Stack
      gap={0}
      component="ul"
      className="framed plain-list"
      opacity={isWaiting ? 0.6 : 1}
      aria-label="Spreadsheets"
      aria-busy={isWaiting}
    >
      {found.map(({ spreadsheetId, title, modifiedAt }) => (
        <li key={spreadsheetId}>
          <Button
            variant="subtle"
            color="gray"
            fullWidth
            justify="space-between"
            radius={0}
            h="auto"
            py={10}
            onClick={() => onChoose(spreadsheetId)}
            rightSection={
              <Text size="sm" c="dimmed" fw={400}>
                <RelativeTime at={modifiedAt} />
              </Text>
            }
            classNames={{ label: 'wrapping' }}
          >
            {title}
          </Button>
        </li>
      ))}
    </Stack>
  );
}
