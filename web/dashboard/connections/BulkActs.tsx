import { Alert, Button, Code, Group, List, Progress, Stack, Text } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useRef, useState } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { IconAlertTriangle, IconCheck, IconPlayerStop } from '../../ui/icons.tsx';
import { counted } from '../../ui/size.ts';
import { retryFailedSyncs } from '../functions/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { accountName } from './EndUser.tsx';
import { type At, type Connection, deleteConnection, newReconnectLink } from './queries.ts';

/** An action on each of the selected connections. Its result is a line of the summary, or a number that is added up. */
type Act = {
  name: string;
  /** The title and the button of the confirmation, for a number of connections. */
  title: (count: string) => string;
  act: (count: string) => string;
  color?: string;
  about: ReactNode;
  run: (environment: string, connection: Connection) => Promise<string | number>;
  summary: (results: (string | number)[]) => string;
};

const atOf = ({ integration_id: integration, connection_id: id }: Connection): At => ({
  integration,
  id,
});

const acts: Act[] = [
  {
    name: 'Create reconnect links',
    title: (count) => `Create reconnect links for ${count}?`,
    act: (count) => `Create links for ${count}`,
    about: 'Each link lets the user of one connection grant access again. Send each only to its own user.',
    run: async (environment, connection) => {
      const { link } = await newReconnectLink(environment, {
        ...atOf(connection),
        health: connection.health,
      });
      return `${accountName(connection)} ${link}`;
    },
    summary: (links) => `${counted(links.length, 'link')} created.`,
  },
  {
    name: 'Retry failed syncs',
    title: (count) => `Retry the failed syncs of ${count}?`,
    act: (count) => `Retry syncs of ${count}`,
    about: 'Each sync whose last run failed is queued.',
    run: (environment, connection) => retryFailedSyncs(environment, atOf(connection)),
    summary: (counts) => `${counted(sumOf(counts), 'sync')} queued.`,
  },
  {
    name: 'Delete',
    title: (count) => `Delete ${count}?`,
    act: (count) => `Delete ${count} permanently`,
    color: 'red',
    about:
      'This permanently deletes their credentials, cached records, metadata and tags. Grants are revoked at the provider, unless another connection shares a grant or the provider does not support revocation.',
    run: async (environment, connection) => {
      await deleteConnection(environment, atOf(connection));
      return 1;
    },
    summary: (counts) => `${counted(sumOf(counts), 'connection')} deleted.`,
  },
];

const sumOf = (counts: (string | number)[]) => counts.reduce<number>((sum, one) => sum + Number(one), 0);

/** The actions on the selected connections of a list. */
export function BulkActs({
  shown,
  selected: ids,
  onClear,
}: {
  /** The connections of the page. */
  shown: Connection[];
  selected: ReadonlySet<number>;
  onClear: () => void;
}) {
  const selected = shown.filter(({ id }) => ids.has(id));
  const [opened, setOpened] = useState<{ act: Act; connections: Connection[] }>();
  return (
    <>
      {shown.length === 0 ? null : selected.length === 0 ? (
        // As high as the actions, so that the list does not move when the first connection is selected.
        <Dimmed mih={26}>Select connections to act on several of them.</Dimmed>
      ) : (
        <Group gap="xs" role="group" aria-label="Actions on selected connections">
          <Text size="sm" fw={550} aria-live="polite">
            {selected.length} selected
          </Text>
          {acts.map((act) => (
            <Button
              key={act.name}
              size="compact-sm"
              variant={act.color === undefined ? 'default' : 'light'}
              {...(act.color !== undefined && { color: act.color })}
              onClick={() => setOpened({ act, connections: selected })}
            >
              {act.name}
            </Button>
          ))}
          <Button size="compact-sm" variant="subtle" onClick={onClear}>
            Clear selection
          </Button>
        </Group>
      )}
      {opened !== undefined && (
        <BulkDialog
          {...opened}
          onClose={(isDone) => {
            setOpened(undefined);
            if (isDone) onClear();
          }}
        />
      )}
    </>
  );
}

type Outcome = { results: (string | number)[]; failures: { name: string; message: string }[] };
const none: Outcome = { results: [], failures: [] };

/** The confirmation with the number of connections, then the progress, then what was done and what failed. */
function BulkDialog({
  act,
  connections,
  onClose,
}: {
  act: Act;
  connections: Connection[];
  onClose: (isDone: boolean) => void;
}) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [outcome, setOutcome] = useState(none);
  const isStopped = useRef(false);
  const run = useMutation({
    mutationFn: async () => {
      let { results, failures } = none;
      for (const connection of connections) {
        if (isStopped.current) return;
        try {
          results = [...results, await act.run(environment, connection)];
        } catch (error) {
          failures = [...failures, { name: accountName(connection), message: (error as Error).message }];
        }
        setOutcome({ results, failures });
      }
    },
    onSettled: () => queries.invalidateQueries({ queryKey: [environment] }),
  });
  const count = counted(connections.length, 'connection');
  const close = () => onClose(!run.isIdle);
  const { isPending } = run;
  return (
    <Dialog
      opened
      onClose={close}
      title={act.title(count)}
      closeOnClickOutside={run.isIdle}
      closeOnEscape={!isPending}
      withCloseButton={!isPending}
    >
      <Stack>
        {run.isIdle ? (
          <Text>{act.about}</Text>
        ) : (
          <Result act={act} outcome={outcome} total={connections.length} isRunning={isPending} />
        )}
        <Group justify="flex-end">
          {isPending ? (
            <Button
              variant="default"
              leftSection={<IconPlayerStop size={16} />}
              onClick={() => {
                isStopped.current = true;
              }}
            >
              Stop
            </Button>
          ) : (
            <Button variant="default" onClick={close} data-autofocus>
              {run.isIdle ? 'Cancel' : 'Close'}
            </Button>
          )}
          {run.isIdle && (
            <Button {...(act.color !== undefined && { color: act.color })} onClick={() => run.mutate()}>
              {act.act(count)}
            </Button>
          )}
        </Group>
      </Stack>
    </Dialog>
  );
}

function Result({
  act,
  outcome: { results, failures },
  total,
  isRunning,
}: {
  act: Act;
  outcome: Outcome;
  total: number;
  isRunning: boolean;
}) {
  const done = results.length + failures.length;
  const lines = results.filter((one) => typeof one === 'string');
  return (
    <>
      <Text aria-live="polite">
        {done} of {counted(total, 'connection')} done
      </Text>
      <Progress
        value={(done / total) * 100}
        animated={isRunning}
        color={failures.length > 0 ? 'red' : 'trellis'}
        size="lg"
        aria-label="Connections done"
      />
      {!isRunning && (
        <Alert
          color={done < total ? 'orange' : 'green'}
          icon={done < total ? <IconPlayerStop size={18} /> : <IconCheck size={18} />}
          title={act.summary(results)}
        >
          {done < total && 'Stopped before the end. The other connections are unchanged.'}
        </Alert>
      )}
      {!isRunning && lines.length > 0 && (
        <>
          <CopyButton
            value={lines.join('\n')}
            what="the links"
            label={`Copy ${counted(lines.length, 'link')}`}
          />
          <Code block tabIndex={0} mah={200} className="broken" style={{ overflowY: 'auto' }}>
            {lines.join('\n')}
          </Code>
        </>
      )}
      {failures.length > 0 && (
        <Alert
          color="red"
          icon={<IconAlertTriangle size={18} />}
          title={`${counted(failures.length, 'connection')} failed`}
        >
          <List size="sm">
            {failures.map(({ name, message }) => (
              <List.Item key={name}>
                {name}: {message}
              </List.Item>
            ))}
          </List>
        </Alert>
      )}
    </>
  );
}
