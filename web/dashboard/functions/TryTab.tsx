import {
  Alert,
  Badge,
  Button,
  Card,
  Grid,
  Group,
  JsonInput,
  Loader,
  NativeSelect,
  SegmentedControl,
  Skeleton,
  Stack,
  Switch,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { Fault } from '../../api/client.ts';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { InlineCode } from '../../ui/InlineCode.tsx';
import { IconEyeOff, IconPlayerPlay, IconPlayerStop, IconPlugConnected, IconPower } from '../../ui/icons.tsx';
import { JsonBlock } from '../../ui/JsonBlock.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { type Connection, connectionsQuery } from '../connections/queries.ts';
import { AnchorLink, ButtonLink, functionPage } from '../links.tsx';
import { ConnectionPicker } from '../playground/ConnectionPicker.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { type FormField, formOf, inputOf, readJson, type Typed, typedOf } from './input-form.ts';
import { type ActionAnswer, callAction, type FunctionAt, type WholeFunction } from './queries.ts';
import { syncKeys } from './SyncActs.tsx';
import { sampleOf, typeWords } from './schema.ts';
import { formatDuration } from './words.ts';

/** Calls an action on a chosen connection, and shows the result. */
export function TryTab({ at, found, mayCall }: { at: FunctionAt; found: WholeFunction; mayCall: boolean }) {
  const environment = useEnvironment();
  const newest = useQuery({
    ...connectionsQuery(environment, { integration_id: at.integration, limit: 20 }),
    enabled: mayCall && found.enabled,
  });
  if (!mayCall) {
    return (
      <EmptyState icon={<IconEyeOff size={26} />} title="Viewers cannot call actions">
        An action uses the credentials of a connected account. Ask an owner for the role of a developer.
      </EmptyState>
    );
  }
  if (!found.enabled) {
    return (
      <EmptyState icon={<IconPower size={26} />} title="The action is turned off">
        Turn the function on to call it.
      </EmptyState>
    );
  }
  return (
    <Loaded query={newest} loading={<Skeleton h={320} />}>
      {({ connections }) =>
        connections[0] === undefined ? (
          <EmptyState
            icon={<IconPlugConnected size={26} />}
            title="Create a connection first"
            action={
              <ButtonLink
                to="/$environment/connections"
                params={{ environment }}
                search={{ integration: at.integration }}
              >
                To the connections
              </ButtonLink>
            }
          >
            An action uses the credentials of a connection of {at.integration}.
          </EmptyState>
        ) : (
          <Try
            at={at}
            found={found}
            start={connections.find(({ health }) => health.status === 'active') ?? connections[0]}
          />
        )
      }
    </Loaded>
  );
}

function Try({ at, found, start }: { at: FunctionAt; found: WholeFunction; start: Connection }) {
  const environment = useEnvironment();
  const schema = found.input === undefined ? undefined : found.json_schema?.definitions[found.input];
  const fields = formOf(schema);
  const [chosen, setChosen] = useState(start);
  const [draft, setDraft] = useState<Draft>(() => startOf(schema));
  const [flaws, setFlaws] = useState<Record<string, string>>({});
  const [state, setState] = useState<CallState>({ is: 'idle' });
  const running = useRef<AbortController>(undefined);
  const queries = useQueryClient();
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
    await Promise.all(syncKeys(environment).map((queryKey) => queries.invalidateQueries({ queryKey })));
  };
  /** Converts the input to the other format, as far as it is valid. */
  const switchTo = (as: Draft['as']) => {
    const given = read();
    setFlaws({});
    if ('flaws' in given || fields === undefined) return setDraft({ ...draft, as });
    if (as === 'json') setDraft({ ...draft, as, json: JSON.stringify(given.input, null, 2) });
    else setDraft({ ...draft, as, typed: typedOf(fields, given.input) });
  };
  // On a narrow page, the response is below the form.
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
              <ConnectionPicker integration={at.integration} chosen={chosen} onChoose={setChosen} />
              {schema === undefined ? (
                <Dimmed>This action has no input.</Dimmed>
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
                  This action can change data in the account of this connection.
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
                    Call
                  </Button>
                )}
              </Group>
            </Stack>
          </form>
        </Card>
      </Grid.Col>
      <Grid.Col span={{ base: 12, lg: 7 }} ref={outcome} style={{ scrollMarginTop: 72 }}>
        <ActionOutcome at={at} state={state} onRetry={() => void call()} />
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

export type CallState =
  | { is: 'idle' }
  | { is: 'running' }
  | { is: 'cancelled' }
  | { is: 'failed'; error: unknown }
  | { is: 'answered'; answer: ActionAnswer };

/** The result of a call of an action. */
function ActionOutcome({ at, state, onRetry }: { at: FunctionAt; state: CallState; onRetry: () => void }) {
  const environment = useEnvironment();
  const toRuns = (
    <AnchorLink size="sm" {...functionPage(environment, at)} search={{ tab: 'runs' }}>
      Runs of this action
    </AnchorLink>
  );
  switch (state.is) {
    case 'idle':
      return (
        <Card>
          <EmptyState icon={<IconPlayerPlay size={26} />} title="Not called yet">
            Choose a connection, enter the input, and call the action. The output appears here.
          </EmptyState>
        </Card>
      );
    case 'running':
      return (
        <Card role="status" aria-label="Running">
          <Group>
            <Loader size="sm" />
            <Text>The action is running</Text>
          </Group>
        </Card>
      );
    case 'cancelled':
      return (
        <Alert color="gray" title="Cancelled" role="status">
          <Stack gap="xs" align="flex-start">
            <Text size="sm">The action was stopped. Its changes at the provider until then remain.</Text>
            {toRuns}
          </Stack>
        </Alert>
      );
    case 'failed':
      return (
        <Stack>
          <FaultNotice error={state.error} onRetry={onRetry} />
          {state.error instanceof Fault && state.error.payload !== undefined && (
            <Card component="section" aria-label="Thrown payload">
              <Title order={2} mb="xs">
                Thrown payload
              </Title>
              <JsonBlock value={state.error.payload} what="the thrown payload" />
            </Card>
          )}
          {toRuns}
        </Stack>
      );
    case 'answered':
      return (
        <Card component="section" aria-label="Output">
          <Group justify="space-between" mb="sm" gap="xs">
            <Group gap="xs">
              <Title order={2}>Output</Title>
              <Badge color="green">Succeeded</Badge>
              <Dimmed>{formatDuration(state.answer.tookMs)}</Dimmed>
            </Group>
            {toRuns}
          </Group>
          <JsonBlock value={state.answer.output} what="the output" />
        </Card>
      );
  }
}

/** The input as a form and as JSON, each with its own text. */
type Draft = { as: 'form' | 'json'; typed: Typed; json: string };

/** The input of an action: a field for each property of its schema, otherwise JSON. */
function InputEditor({
  fields,
  draft,
  flaws,
  onChange,
  onSwitch,
}: {
  fields: FormField[] | undefined;
  draft: Draft;
  /** By field; an error of the JSON as a whole has an empty name. */
  flaws: Record<string, string>;
  onChange: (draft: Draft) => void;
  onSwitch: (as: Draft['as']) => void;
}) {
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <Text fw={600} size="sm">
          Input
        </Text>
        {fields !== undefined && (
          <SegmentedControl
            size="xs"
            aria-label="Input format"
            data={[
              { value: 'form', label: 'Form' },
              { value: 'json', label: 'JSON' },
            ]}
            value={draft.as}
            onChange={(as) => onSwitch(as as Draft['as'])}
          />
        )}
      </Group>
      {draft.as === 'json' || fields === undefined ? (
        <JsonInput
          aria-label="Input as JSON"
          placeholder="{}"
          autosize
          minRows={6}
          maxRows={20}
          value={draft.json}
          onChange={(json) => onChange({ ...draft, json })}
          error={flaws['']}
        />
      ) : (
        fields.map((field) => (
          <InputField
            key={field.name}
            field={field}
            value={Object.hasOwn(draft.typed, field.name) ? draft.typed[field.name] : undefined}
            flaw={Object.hasOwn(flaws, field.name) ? flaws[field.name] : undefined}
            onChange={(value) => {
              const rest = Object.entries(draft.typed).filter(([name]) => name !== field.name);
              const typed = value === undefined ? rest : [...rest, [field.name, value] as const];
              onChange({ ...draft, typed: Object.fromEntries(typed) });
            }}
          />
        ))
      )}
    </Stack>
  );
}

function InputField({
  field: { name, schema, isRequired, control, choices },
  value,
  flaw,
  onChange,
}: {
  field: FormField;
  value: string | boolean | undefined;
  flaw: string | undefined;
  onChange: (value: string | boolean | undefined) => void;
}) {
  const about =
    typeof schema.description === 'string' ? (
      <InlineCode>{schema.description}</InlineCode>
    ) : (
      typeWords(schema)
    );
  const common = { label: name, description: about, withAsterisk: isRequired, error: flaw };
  const text = typeof value === 'string' ? value : '';
  switch (control) {
    case 'switch':
      return (
        <Switch
          label={name}
          description={about}
          checked={value === true}
          onChange={({ currentTarget: { checked } }) => onChange(checked)}
        />
      );
    case 'choice':
      return (
        <NativeSelect
          {...common}
          data={[{ value: '', label: isRequired ? 'Choose one' : 'none' }, ...choices]}
          value={text}
          onChange={({ currentTarget }) => onChange(currentTarget.value || undefined)}
        />
      );
    case 'json':
      return (
        <JsonInput
          {...common}
          autosize
          minRows={2}
          maxRows={12}
          value={text}
          onChange={(typed) => onChange(typed === '' ? undefined : typed)}
        />
      );
    default:
      return (
        <TextInput
          {...common}
          spellCheck={false}
          inputMode={control === 'number' ? 'decimal' : 'text'}
          value={text}
          onChange={({ currentTarget }) =>
            onChange(currentTarget.value === '' ? undefined : currentTarget.value)
          }
        />
      );
  }
}
