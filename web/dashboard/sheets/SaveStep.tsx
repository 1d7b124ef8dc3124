import { Alert, Button, Card, Group, Select, Stack, Text, TextInput, Title } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { type At, datasetsQuery } from '../connections/queries.ts';
import { syncsQuery } from '../functions/queries.ts';
import { spelled } from '../functions/words.ts';
import { ownFrequencyQuery, saveSheet } from './queries.ts';
import {
  type ChosenSheet,
  freeVariant,
  keepsIds,
  rowModel,
  rowsSync,
  type SheetSettings,
  variantPattern,
} from './settings.ts';

const own = 'own';
/** As the service spells them. */
const common: Record<string, string> = {
  ...{ '1m': 'every minute', '15m': 'every 15 minutes', '30m': 'every 30 minutes' },
  ...{ '1h': 'every hour', '6h': 'every 6 hours', '1d': 'every day' },
};

/** What the records are called, how often they are brought up to date, and the button that begins. */
export function SaveStep({
  environment,
  at,
  settings,
  chosen,
  edited,
  isWaiting,
}: {
  environment: string;
  at: At;
  settings: SheetSettings;
  chosen: ChosenSheet[];
  edited: ChosenSheet | undefined;
  /** What is chosen is not looked at yet. */
  isWaiting: boolean;
}) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const { data: datasets = [] } = useQuery(datasetsQuery(environment, at));
  const { data: syncs } = useQuery(
    syncsQuery(environment, {
      ...{ provider_config_key: at.integration, connection_id: at.id },
      ...{ function: rowsSync, limit: 200 },
    }),
  );
  const taken = new Set(chosen.map(({ variant }) => variant));
  const kept = new Set(
    datasets.filter(({ model, records }) => model === rowModel && records > 0).map(({ variant }) => variant),
  );
  const { data: ownFrequency } = useQuery(ownFrequencyQuery(environment));
  const [typed, setTyped] = useState<string>();
  const names = { title: settings.title ?? '', tab: settings.tab ?? '' };
  const variant = edited?.variant ?? typed ?? freeVariant(names, new Set([...taken, ...kept]));
  const [frequency, setFrequency] = useState<string>();
  const sync = syncs?.syncs.find((one) => one.variant === variant);
  const current = sync?.own_frequency ?? own;
  const wrong = edited === undefined ? wrongName(variant, taken) : undefined;
  const isLeftover = edited === undefined && kept.has(variant);
  const isRenumbered = edited !== undefined && !keepsIds(edited, settings);
  const save = useMutation({
    mutationFn: () =>
      saveSheet(environment, {
        ...{ at, variant, settings },
        frequency:
          frequency === undefined || frequency === current ? undefined : frequency === own ? null : frequency,
        isNew: edited === undefined,
        emptied: isLeftover || isRenumbered,
      }),
    onSuccess: async () => {
      await Promise.all(
        ['connection', 'syncs', 'runs', 'functions'].map((name) =>
          queries.invalidateQueries({ queryKey: [environment, name] }),
        ),
      );
      await navigate({
        to: '/$environment/connections/$integration/$id/sheets/of/$variant',
        params: { environment, ...at, variant },
      });
    },
  });
  const offered = { ...(current !== own && { [current]: spelled(current) }), ...common };
  return (
    <Card component="section" aria-label="Save">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate();
        }}
      >
        <Stack>
          <Title order={2}>Its records</Title>
          <Group align="flex-start" gap="md">
            {edited === undefined && (
              <TextInput
                label="Name"
                description={
                  variant === 'base'
                    ? `Records of the model ${rowModel}; "base" need not be named to read them`
                    : `Records of the model ${rowModel}, read with variant=${variant}`
                }
                flex="1 1 240px"
                maw={420}
                value={variant}
                error={wrong}
                onChange={({ currentTarget: { value } }) => setTyped(value.trim())}
              />
            )}
            <Select
              label="Brought up to date"
              description="A sheet that has not changed costs one call"
              flex="1 1 200px"
              maw={300}
              data={[
                {
                  value: own,
                  label: ownFrequency ? `${spelled(ownFrequency)} (as it ships)` : 'as it ships',
                },
                ...Object.entries(offered).map(([value, label]) => ({ value, label })),
              ]}
              value={frequency ?? current}
              onChange={(next) => setFrequency(next ?? undefined)}
              allowDeselect={false}
            />
          </Group>
          {isLeftover && (
            <Alert color="yellow" role="status" title="Records of another sheet have this name">
              They were kept when it was removed, and go when this one is saved.
            </Alert>
          )}
          {isRenumbered && (
            <Alert color="yellow" role="status" title="The records get other IDs">
              Rows are told apart in another way. The records that are there are removed, and come back under
              their new IDs; readers get an event that the dataset was emptied.
            </Alert>
          )}
          {settings.identity === 'metadata' && (
            <Text size="sm" c="dimmed">
              The first run writes a mark to each row of the sheet. People do not see it.
            </Text>
          )}
          {save.isError && <FaultNotice error={save.error} />}
          <Group justify="flex-end">
            <Button type="submit" loading={save.isPending} disabled={isWaiting || wrong !== undefined}>
              {edited === undefined ? 'Save and read the sheet' : 'Save and read it again'}
            </Button>
          </Group>
        </Stack>
      </form>
    </Card>
  );
}

function wrongName(name: string, taken: ReadonlySet<string>): string | undefined {
  if (!variantPattern.test(name)) return 'Letters, digits, _ and - please, up to 255';
  return taken.has(name) ? 'Another sheet of this connection has this name' : undefined;
}
