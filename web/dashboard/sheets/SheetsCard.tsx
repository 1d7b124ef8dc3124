import { Badge, Card, Group, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { IconPlus } from '../../ui/icons.tsx';
import { type At, datasetsQuery } from '../connections/queries.ts';
import { type Sync, syncsQuery } from '../functions/queries.ts';
import { SyncBadge } from '../functions/StateBadge.tsx';
import { SyncActs } from '../functions/SyncActs.tsx';
import { LastRun, SyncError } from '../functions/SyncsTable.tsx';
import { ButtonLink } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { type ChosenSheet, chosenOf, nameOf, rowModel, rowsSync } from './settings.ts';

/** The sheets of a connection. */
export function SheetsCard({ at, metadata }: { at: At; metadata: Record<string, unknown> }) {
  const environment = useEnvironment();
  const may = useMay();
  const mayWrite = may('functions:write') && may('connections:write');
  const sheets = chosenOf(metadata);
  const { data: syncs } = useQuery({
    ...syncsQuery(environment, {
      integration_id: at.integration,
      connection_id: at.id,
      function: rowsSync,
      limit: 200,
    }),
    enabled: sheets.length > 0,
  });
  const { data: datasets } = useQuery({ ...datasetsQuery(environment, at), enabled: sheets.length > 0 });
  const recordsOf = (variant: string) =>
    datasets?.find((one) => one.model === rowModel && one.variant === variant)?.records;
  return (
    <Card component="section" aria-label="Sheets">
      <Group justify="space-between" mb="xs">
        <Title order={2}>Sheets</Title>
        {mayWrite && (
          <ButtonLink
            size="sm"
            variant={sheets.length === 0 ? 'filled' : 'default'}
            leftSection={<IconPlus size={16} />}
            to="/$environment/connections/$integration/$id/sheets/new"
            params={{ environment, ...at }}
            search={{}}
          >
            Add a sheet
          </ButtonLink>
        )}
      </Group>
      {sheets.length === 0 ? (
        <Dimmed>Add a tab of a spreadsheet to cache its rows as records, without code.</Dimmed>
      ) : (
        <Stack gap="sm">
          {sheets.map((sheet) => (
            <Row
              key={sheet.variant}
              at={at}
              sheet={sheet}
              sync={syncs?.syncs.find(({ variant }) => variant === sheet.variant)}
              records={recordsOf(sheet.variant)}
              mayWrite={mayWrite}
            />
          ))}
        </Stack>
      )}
    </Card>
  );
}

function Row({
  at,
  sheet,
  sync,
  records,
  mayWrite,
}: {
  at: At;
  sheet: ChosenSheet;
  sync: Sync | undefined;
  records: number | undefined;
  mayWrite: boolean;
}) {
  const environment = useEnvironment();
  const { variant } = sheet;
  return (
    <Group wrap="nowrap" align="flex-start" justify="space-between" gap="sm">
      <Stack gap={4} miw={0} flex={1} pos="relative">
        <Group gap={8}>
          <Link
            className="fill-link"
            to="/$environment/connections/$integration/$id/sheets/of/$variant"
            params={{ environment, ...at, variant }}
          >
            <Text span size="sm" fw={550} className="wrap" c="var(--mantine-color-anchor)">
              {nameOf(sheet)}
            </Text>
          </Link>
          {variant !== 'base' && <Badge color="gray">{variant}</Badge>}
          <SyncBadge sync={sync} />
        </Group>
        <Group gap="md">
          {records !== undefined && <Text size="sm">{rowsText(records)}</Text>}
          {sync !== undefined && (
            <Group gap={6} pos="relative">
              <Dimmed>Last run</Dimmed>
              <LastRun sync={sync} />
            </Group>
          )}
        </Group>
        {sync !== undefined && <SyncError sync={sync} />}
      </Stack>
      {mayWrite && (
        <SyncActs
          at={{ integration: at.integration, connection: at.id, name: rowsSync, variant }}
          sync={sync}
        />
      )}
    </Group>
  );
}

function rowsText(count: number): string {
  return count === 1 ? '1 record' : `${count.toLocaleString()} records`;
}
