import { Alert, Button, Card, Grid, Group, Loader, Stack, Text } from '@mantine/core';
import { useDebouncedCallback, useDisclosure } from '@mantine/hooks';
import { IconCode, IconPlayerPlay, IconSend } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useEffect, useRef, useState } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import type { Connection } from '../connections/queries.ts';
import { AnswerCard } from './AnswerCard.tsx';
import { sizeOf } from './answer.ts';
import { ConnectionPicker } from './ConnectionPicker.tsx';
import { keepBody, keptBody } from './draft.ts';
import { type Caller, makeSampleSheet, suggestionsQuery } from './queries.ts';
import { RequestForm } from './RequestForm.tsx';
import { type Form, flawOf, formOf, formOfSearch, harmlessBody, requestOf, searchOfForm } from './request.ts';
import { Snippets } from './Snippets.tsx';
import { type CallState, useProxiedCall } from './useProxiedCall.ts';

/** What the page needs of the connection that calls. */
export type Chosen = Pick<
  Connection,
  'connection_id' | 'provider_config_key' | 'provider' | 'test' | 'account'
>;

export function Playground({
  environment,
  mayWrite,
  start,
}: {
  environment: string;
  mayWrite: boolean;
  start: Chosen;
}) {
  const search = useSearch({ from: '/$environment/playground' });
  const navigate = useNavigate({ from: '/$environment/playground' });
  const [chosen, setChosen] = useState(start);
  const [form, setForm] = useState(() => {
    const first = formOfSearch(search);
    return first.body === '' ? { ...first, body: keptBody(callOf(environment, first)) } : first;
  });
  const [isCodeOpen, { open: openCode, close: closeCode }] = useDisclosure();
  const { data: api } = useQuery(suggestionsQuery(chosen.provider));
  const { state, run, cancel, reset } = useProxiedCall();
  const caller: Caller = {
    environment,
    integration: chosen.provider_config_key,
    connection: chosen.connection_id,
  };
  const place = { baseUrl: location.origin, integration: caller.integration, connection: caller.connection };

  const writeAddress = useDebouncedCallback((next: Form, of: Chosen) => {
    void navigate({
      search: {
        integration: of.provider_config_key,
        connection: of.connection_id,
        ...searchOfForm(next),
      },
      replace: true,
    });
  }, 300);
  const change = (next: Form) => {
    setForm(next);
    keepBody(callOf(environment, next), harmlessBody(next.body, '') ?? '');
    writeAddress(next, chosen);
  };
  const choose = (next: Chosen) => {
    setChosen(next);
    reset();
    writeAddress(form, next);
  };
  const send = () => void run(() => ({ caller, request: requestOf(form) }));

  const example = api?.calls.find(({ id }) => id === 'values.get');
  /** Reads what is there; a test account that has nothing yet is given something to read. */
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

  // On a narrow page the answer stands below the form.
  const outcome = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (state.is !== 'idle') outcome.current?.scrollIntoView({ block: 'nearest' });
  }, [state.is]);

  return (
    <Grid gap="lg">
      <Grid.Col span={{ base: 12, lg: 5 }}>
        <Card component="section" aria-label="Call">
          <Stack gap="md">
            <ConnectionPicker environment={environment} chosen={chosen} onChoose={choose} />
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
                <Button variant="default" leftSection={<IconCode size={16} />} onClick={openCode}>
                  Copy as code
                </Button>
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
      <Grid.Col span={{ base: 12, lg: 7 }} ref={outcome} style={{ scrollMarginTop: 72 }}>
        <Outcome state={state} onRetry={send} />
      </Grid.Col>
      {isCodeOpen && <Snippets form={form} place={place} api={api} isOpen onClose={closeCode} />}
    </Grid>
  );
}

/** Which call a body belongs to. */
function callOf(environment: string, { method, path }: Form): string {
  return `${environment} ${method} ${path}`;
}

/** The same page with the same call, without what is named like a secret and without its body. */
function linkTo(environment: string, form: Form, chosen: Chosen): string {
  const given = {
    integration: chosen.provider_config_key,
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
          <EmptyState icon={<IconSend size={26} />} title="Nothing sent yet">
            Choose a call or write a path, and send it. The answer stands here: its values as a table, its
            headers, and where the time went.
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
                ? 'Waiting for the answer'
                : `${state.progress.status}, ${sizeOf(state.progress.receivedBytes)} so far`}
            </Text>
          </Group>
        </Card>
      );
    case 'cancelled':
      return (
        <Alert color="gray" title="Cancelled" role="status">
          The call was ended here and at the provider. What it was to write may have been done.
        </Alert>
      );
    case 'failed':
      return <FaultNotice error={state.error} onRetry={onRetry} />;
    case 'answered':
      return <AnswerCard answer={state.answer} />;
  }
}
