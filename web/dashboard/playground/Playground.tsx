import { Alert, Button, Card, Grid, Group, Loader, Skeleton, Stack, Text } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { useQuery, useQueryClient, useSuspenseQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useCallback, useEffect, useRef, useState } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconEyeOff, IconPlayerPlay, IconPlugConnected, IconSend } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Page } from '../../ui/Page.tsx';
import { useFocusIfLost } from '../../ui/use-focus-if-lost.ts';
import { CodeButton } from '../CodeButton.tsx';
import { type Connection, connectionQuery } from '../connections/queries.ts';
import { providerQuery } from '../integrations/queries.ts';
import { AnchorLink, ButtonLink, connectionPage, GuideLink } from '../links.tsx';
import { Snippets } from '../Snippets.tsx';
import { makeSampleSheet } from '../sheets/sample.ts';
import { useEnvironment } from '../shell/environment.ts';
import { meQuery } from '../sign-in/queries.ts';
import { AnswerCard } from './AnswerCard.tsx';
import { sizeOf } from './answer.ts';
import { ConnectionPicker } from './ConnectionPicker.tsx';
import type { SuggestedApi } from './calls.ts';
import {
  type Caller,
  newestCallableQuery,
  type Progress,
  type ProxiedAnswer,
  sendCall,
  suggestionsQuery,
} from './queries.ts';
import { RequestForm } from './RequestForm.tsx';
import {
  type Form,
  flawOf,
  formOf,
  formOfSearch,
  harmlessBody,
  type ProxiedRequest,
  requestOf,
  searchOfForm,
} from './request.ts';
import { type CallTarget, callOf, clientOf } from './snippets.ts';

/** The fields of the connection that the page uses. */
export type Chosen = Pick<
  Connection,
  'connection_id' | 'integration_id' | 'provider' | 'test' | 'account' | 'end_user'
>;

export function Playground({ mayWrite, start }: { mayWrite: boolean; start: Chosen }) {
  const environment = useEnvironment();
  const search = useSearch({ from: '/$environment/playground' });
  const navigate = useNavigate({ from: '/$environment/playground' });
  const [chosen, setChosen] = useState(start);
  const [form, setForm] = useState(() => {
    const first = formOfSearch(search);
    return first.body === '' ? { ...first, body: keptBody(bodyKeyOf(environment, first)) } : first;
  });
  const { data: api } = useQuery(suggestionsQuery(chosen.provider));
  const { data: provider } = useQuery(providerQuery(environment, chosen.provider));
  const { state, run, cancel, reset } = useProxiedCall();
  const queries = useQueryClient();
  useEffect(() => {
    if (state.is !== 'answered') return;
    // The service logs a call after its response.
    const queryKey = [environment, 'progress'];
    setTimeout(() => void queries.invalidateQueries({ queryKey }), 1_000);
  }, [state.is, environment, queries]);
  const caller: Caller = {
    environment,
    integration: chosen.integration_id,
    connection: chosen.connection_id,
  };
  const place = { baseUrl: location.origin, integration: caller.integration, connection: caller.connection };

  const writeAddress = useDebouncedCallback((next: Form, of: Chosen) => {
    void navigate({
      search: { integration: of.integration_id, connection: of.connection_id, ...searchOfForm(next) },
      replace: true,
    });
  }, 300);
  const change = (next: Form) => {
    setForm(next);
    keepBody(bodyKeyOf(environment, next), harmlessBody(next.body, '') ?? '');
    writeAddress(next, chosen);
  };
  const choose = (next: Chosen) => {
    setChosen(next);
    reset();
    writeAddress(form, next);
  };
  const send = () => void run(() => ({ caller, request: requestOf(form) }));

  const example = api?.calls.find(({ id }) => id === 'values.get');
  /** Reads the first sheet; a test account without a spreadsheet gets a sample one. */
  const tryExample = () => {
    if (example === undefined) return;
    const filled = formOf(example, form);
    const range = { range: filled.fields.range || 'A1:Z100' };
    const spreadsheetId = filled.fields.spreadsheetId ?? '';
    const ready = { ...filled, fields: { spreadsheetId, ...range } };
    change(ready);
    if (spreadsheetId !== '') {
      void run(() => ({ caller, request: requestOf(ready) }));
    } else if (chosen.test && mayWrite) {
      void run(async (signal) => {
        const made = { ...ready, fields: { ...range, spreadsheetId: await makeSampleSheet(caller, signal) } };
        change(made);
        return { caller, request: requestOf(made) };
      });
    }
  };

  // On a narrow page, the response is below the form.
  const outcome = useFocusIfLost<HTMLDivElement>(state.is);
  useEffect(() => {
    if (state.is !== 'idle') outcome.current?.scrollIntoView({ block: 'nearest' });
  }, [state.is, outcome]);

  if (provider !== undefined && provider.proxy === undefined) {
    return (
      <Card component="section" aria-label="Call">
        <Stack gap="md">
          <ConnectionPicker chosen={chosen} onChoose={choose} />
          <Alert color="yellow" title={`${provider.display_name} has no HTTP API`}>
            This connection has no proxied calls. Choose another one, or read its credentials: the code is on{' '}
            <AnchorLink
              inherit
              c="inherit"
              underline="always"
              {...connectionPage(environment, { integration: caller.integration, id: caller.connection })}
            >
              its page
            </AnchorLink>
            .
          </Alert>
        </Stack>
      </Card>
    );
  }
  return (
    <Grid gap="lg">
      <Grid.Col span={{ base: 12, lg: 5 }}>
        <Card component="section" aria-label="Call">
          <Stack gap="md">
            <ConnectionPicker chosen={chosen} onChoose={choose} />
            {example !== undefined && (
              <Button
                variant="light"
                leftSection={<IconPlayerPlay size={16} />}
                onClick={tryExample}
                disabled={state.is === 'running'}
              >
                Read the first sheet's values
              </Button>
            )}
            <RequestForm
              form={form}
              api={api}
              isRunning={state.is === 'running'}
              mayWrite={mayWrite}
              onChange={change}
              onSend={send}
              onCancel={cancel}
            />
            {flawOf(form) === undefined && (
              <Group gap="xs">
                <CodeButton label="Copy as code">
                  <FormCode form={form} place={place} api={api} />
                </CodeButton>
                <CopyButton
                  value={linkTo(environment, form, chosen)}
                  what={form.body === '' ? 'a link to this call' : 'a link to this call, without its body'}
                  label="Copy link"
                />
              </Group>
            )}
          </Stack>
        </Card>
      </Grid.Col>
      <Grid.Col
        span={{ base: 12, lg: 7 }}
        ref={outcome}
        tabIndex={-1}
        className="unmarked"
        style={{ scrollMarginTop: 72 }}
      >
        <Outcome state={state} onRetry={send} />
      </Grid.Col>
    </Grid>
  );
}

/** The call to which a body belongs. */
function bodyKeyOf(environment: string, { method, path }: Form): string {
  return `${environment} ${method} ${path}`;
}

/** The address of this page with the call, without secrets and without the body. */
function linkTo(environment: string, form: Form, chosen: Chosen): string {
  const given = {
    integration: chosen.integration_id,
    connection: chosen.connection_id,
    ...searchOfForm(form),
  };
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined) search.set(name, JSON.stringify(value));
  }
  return `${location.origin}/app/${encodeURIComponent(environment)}/playground?${search}`;
}

function Outcome({ state, onRetry }: { state: CallState; onRetry: () => void }) {
  switch (state.is) {
    case 'idle':
      return (
        <Card>
          <EmptyState icon={<IconSend size={26} />} title="No response yet">
            Choose a call or enter a path, and send it. The response appears here, with its headers and
            timing.
          </EmptyState>
        </Card>
      );
    case 'running':
      return (
        <Card role="status" aria-label="Running">
          <Group>
            <Loader size="sm" />
            <Text>
              {state.progress.status === undefined
                ? 'Waiting for the response'
                : `${state.progress.status}, ${sizeOf(state.progress.receivedBytes)} so far`}
            </Text>
          </Group>
        </Card>
      );
    case 'cancelled':
      return (
        <Alert color="gray" title="Cancelled" role="status">
          The call was cancelled. The provider may already have processed it.
        </Alert>
      );
    case 'failed':
      return <FaultNotice error={state.error} onRetry={onRetry} />;
    case 'answered':
      return <AnswerCard answer={state.answer} />;
  }
}

const draftKey = 'trellis-playground-body';

/**
 * Keeps the body of a call for a reload of this tab. Bodies contain customer data, so they are not in addresses, which
 * are kept in logs, histories and chats.
 */
function keepBody(call: string, body: string): void {
  try {
    sessionStorage.setItem(draftKey, JSON.stringify({ call, body }));
  } catch {
    // Without storage, the body is empty.
  }
}

/** The kept body of this call; empty without one. */
function keptBody(call: string): string {
  try {
    const kept = JSON.parse(sessionStorage.getItem(draftKey) ?? '{}') as { call?: string; body?: string };
    return kept.call === call && typeof kept.body === 'string' ? kept.body : '';
  } catch {
    return '';
  }
}

export type CallState =
  | { is: 'idle' }
  | { is: 'running'; progress: Progress }
  | { is: 'cancelled' }
  | { is: 'failed'; error: unknown }
  | { is: 'answered'; answer: ProxiedAnswer };

/** The call, after a preparation if there is one. */
type Ready = { caller: Caller; request: ProxiedRequest };

/** One call at a time; leaving the page cancels it. */
function useProxiedCall() {
  const [state, setState] = useState<CallState>({ is: 'idle' });
  const running = useRef<AbortController>(undefined);
  useEffect(() => () => running.current?.abort(), []);

  const run = useCallback(async (prepare: (signal: AbortSignal) => Promise<Ready> | Ready) => {
    running.current?.abort();
    const own = new AbortController();
    running.current = own;
    // The response to a previous call is ignored.
    const update = (next: CallState) => {
      if (running.current === own) setState(next);
    };
    update({ is: 'running', progress: { status: undefined, receivedBytes: 0 } });
    try {
      const { caller, request } = await prepare(own.signal);
      const onProgress = (progress: Progress) => update({ is: 'running', progress });
      update({ is: 'answered', answer: await sendCall(caller, request, { signal: own.signal, onProgress }) });
    } catch (error) {
      update(own.signal.aborted ? { is: 'cancelled' } : { is: 'failed', error });
    }
  }, []);
  const cancel = useCallback(() => running.current?.abort(), []);
  const reset = useCallback(() => {
    running.current?.abort();
    running.current = undefined;
    setState({ is: 'idle' });
  }, []);
  return { state, run, cancel, reset };
}

/** The call of a valid form as code. */
function FormCode({
  form,
  place,
  api,
}: {
  form: Form;
  place: CallTarget;
  api: SuggestedApi | null | undefined;
}) {
  const byClient = clientOf(form, place, api ?? null);
  const name = api?.client?.package ?? '';
  return (
    <>
      <Snippets
        title="This call"
        call={callOf(form, place)}
        scopes={['proxy:read', 'proxy:write']}
        {...(byClient !== undefined && { more: { [name]: byClient } })}
      />
      <Dimmed>
        Values with names of secrets are left out.
        {byClient === undefined && name !== '' && ` The calls of the list also have code for ${name}.`}
      </Dimmed>
    </>
  );
}

/** Sends a call to a provider through the proxy as the signed-in user. */
export function PlaygroundPage() {
  const environment = useEnvironment();
  const { data: me } = useSuspenseQuery(meQuery());
  const scopes = me.environments.find(({ name }) => name === environment)?.scopes ?? [];
  return (
    <Page
      title="Playground"
      about={
        <>
          Call a provider through the proxy with the credentials of a connection.{' '}
          <GuideLink to="playground" />
        </>
      }
    >
      {scopes.includes('proxy:read') ? (
        <WithConnection key={environment} mayWrite={scopes.includes('proxy:write')} />
      ) : (
        <EmptyState icon={<IconEyeOff size={26} />} title="Viewers cannot call providers">
          A call uses the credentials of a connected account. Your role in {environment} is read-only. Ask an
          owner for the role of a developer.
        </EmptyState>
      )}
    </Page>
  );
}

/** Starts with the connection in the address, or the newest active one whose provider has an API. */
function WithConnection({ mayWrite }: { mayWrite: boolean }) {
  const environment = useEnvironment();
  const search = useSearch({ from: '/$environment/playground' });
  // The address follows the choice; only the initial address selects the connection.
  const [{ integration, connection: id }] = useState(search);
  const isNamed = integration !== undefined && id !== undefined;
  const named = useQuery({
    ...connectionQuery(environment, { integration: integration ?? '', id: id ?? '' }),
    enabled: isNamed,
  });
  const newest = useQuery({ ...newestCallableQuery(environment, useQueryClient()), enabled: !isNamed });
  const waiting = (
    <Stack role="status" aria-label="Loading">
      <Skeleton h={62} />
      <Skeleton h={320} />
    </Stack>
  );
  const open = (start: Chosen) => <Playground mayWrite={mayWrite} start={start} />;
  if (isNamed) {
    return (
      <Loaded query={named} loading={waiting}>
        {open}
      </Loaded>
    );
  }
  return (
    <Loaded query={newest} loading={waiting}>
      {(start) =>
        start !== null ? (
          open(start)
        ) : (
          <EmptyState
            icon={<IconPlugConnected size={26} />}
            title="Create a connection first"
            action={
              <ButtonLink to="/$environment/connections" params={{ environment }} search={{}}>
                To the connections
              </ButtonLink>
            }
          >
            Calls use the credentials of a connection. With a test connection you do not need an account at
            the provider.
          </EmptyState>
        )
      }
    </Loaded>
  );
}
