import { Alert, Button, Card, Grid, Group, Skeleton, Stack, Text } from '@mantine/core';
import {
  IconEyeOff,
  IconPlayerPlay,
  IconPlayerStop,
  IconPlugConnected,
  IconPower,
} from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useEffect, useRef, useState } from 'react';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { type Connection, connectionsQuery } from '../connections/queries.ts';
import { ConnectionPicker } from '../playground/ConnectionPicker.tsx';
import { ActionOutcome, type CallState } from './ActionOutcome.tsx';
import { type Draft, InputEditor } from './InputEditor.tsx';
import { formOf, inputOf, readJson, typedOf } from './input-form.ts';
import { callAction, type FunctionAt, type WholeFunction } from './queries.ts';
import { useRefreshSyncs } from './SyncActs.tsx';
import { sampleOf } from './schema.ts';

/** Calls an action by hand, on a connection of one's choice, and shows what it answers. */
export function TryTab({
  environment,
  at,
  found,
  mayCall,
}: {
  environment: string;
  at: FunctionAt;
  found: WholeFunction;
  mayCall: boolean;
}) {
  const newest = useQuery({
    ...connectionsQuery(environment, { integrationId: at.integration, limit: 20 }),
    enabled: mayCall && found.enabled,
  });
  if (!mayCall) {
    return (
      <EmptyState icon={<IconEyeOff size={26} />} title="Viewers cannot call actions">
        An action uses the credentials of somebody's account. An owner can make you a developer.
      </EmptyState>
    );
  }
  if (!found.enabled) {
    return (
      <EmptyState icon={<IconPower size={26} />} title="It is off">
        Turn the action on to call it.
      </EmptyState>
    );
  }
  return (
    <Loaded query={newest} loading={<Skeleton h={320} />}>
      {({ connections }) =>
        connections[0] === undefined ? (
          <EmptyState
            icon={<IconPlugConnected size={26} />}
            title="A connection comes first"
            action={
              <Button
                renderRoot={(props) => (
                  <Link
                    to="/$environment/connections"
                    params={{ environment }}
                    search={{ integration: at.integration }}
                    {...props}
                  />
                )}
              >
                To the connections
              </Button>
            }
          >
            An action runs with the credentials of an account of {at.integration}.
          </EmptyState>
        ) : (
          <Try
            environment={environment}
            at={at}
            found={found}
            start={connections.find(({ health }) => health.status === 'active') ?? connections[0]}
          />
        )
      }
    </Loaded>
  );
}

function Try({
  environment,
  at,
  found,
  start,
}: {
  environment: string;
  at: FunctionAt;
  found: WholeFunction;
  start: Connection;
}) {
  const schema = found.input === undefined ? undefined : found.json_schema?.definitions[found.input];
  const fields = formOf(schema);
  const [chosen, setChosen] = useState(start);
  const [draft, setDraft] = useState<Draft>(() => startOf(schema));
  const [flaws, setFlaws] = useState<Record<string, string>>({});
  const [state, setState] = useState<CallState>({ is: 'idle' });
  const running = useRef<AbortController>(undefined);
  const refresh = useRefreshSyncs(environment);
  useEffect(() => () => running.current?.abort(), []);

  const read = () => {
    if (draft.as === 'form' && fields !== undefined) return inputOf(fields, draft.typed);
    const json = readJson(draft.json);
    return 'flaw' in json ? { flaws: { '': json.flaw } } : { input: json.value };
  };
  const call = async () => {
    const given = read();
    if ('flaws' in given) return setFlaws(given.flaws);
    setFlaws({});
    const own = new AbortController();
    running.current = own;
    setState({ is: 'running' });
    try {
      const connection = chosen.connection_id;
      const answer = await callAction(environment, {
        at,
        connection,
        input: given.input,
        signal: own.signal,
      });
      setState({ is: 'answered', answer });
    } catch (error) {
      setState(own.signal.aborted ? { is: 'cancelled' } : { is: 'failed', error });
    }
    await refresh();
  };
  /** What was typed goes along to the other way of giving it, as far as it can be read. */
  const switchTo = (as: Draft['as']) => {
    const given = read();
    setFlaws({});
    if ('flaws' in given || fields === undefined) return setDraft({ ...draft, as });
    if (as === 'json') setDraft({ ...draft, as, json: JSON.stringify(given.input, null, 2) });
    else setDraft({ ...draft, as, typed: typedOf(fields, given.input) });
  };
  // On a narrow page the answer stands below the form.
  const outcome = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (state.is !== 'idle') outcome.current?.scrollIntoView({ block: 'nearest' });
  }, [state.is]);
  return (
    <Grid gap="lg">
      <Grid.Col span={{ base: 12, lg: 5 }}>
        <Card component="section" aria-label="Call">
          <form
            aria-label="Call"
            onSubmit={(event) => {
              event.preventDefault();
              if (state.is !== 'running') void call();
            }}
          >
            <Stack gap="md">
              <ConnectionPicker
                environment={environment}
                integration={at.integration}
                chosen={chosen}
                onChoose={setChosen}
              />
              {schema === undefined ? (
                <Text size="sm" c="dimmed">
                  It takes no input.
                </Text>
              ) : (
                <InputEditor
                  fields={fields}
                  draft={draft}
                  flaws={flaws}
                  onChange={setDraft}
                  onSwitch={switchTo}
                />
              )}
              {!found.read_only && (
                <Alert color="yellow" py="xs">
                  It may change things at the provider, in the account of this connection.
                </Alert>
              )}
              <Group>
                {state.is === 'running' ? (
                  <Button
                    key="cancel"
                    color="red"
                    variant="light"
                    leftSection={<IconPlayerStop size={16} />}
                    onClick={() => running.current?.abort()}
                  >
                    Cancel
                  </Button>
                ) : (
                  <Button key="call" type="submit" leftSection={<IconPlayerPlay size={16} />}>
                    Call it
                  </Button>
                )}
              </Group>
            </Stack>
          </form>
        </Card>
      </Grid.Col>
      <Grid.Col span={{ base: 12, lg: 7 }} ref={outcome} style={{ scrollMarginTop: 72 }}>
        <ActionOutcome environment={environment} at={at} state={state} onRetry={() => void call()} />
      </Grid.Col>
    </Grid>
  );
}

function startOf(schema: Record<string, unknown> | undefined): Draft {
  const fields = formOf(schema);
  const sample = schema === undefined ? undefined : sampleOf(schema);
  const json = sample === undefined || sample === null ? '' : JSON.stringify(sample, null, 2);
  return { as: fields === undefined ? 'json' : 'form', typed: {}, json };
}
