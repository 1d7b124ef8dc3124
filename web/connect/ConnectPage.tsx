import { useEffect, useRef, useState } from 'react';
import { pollRepeatedly, useAuthorizationFlow } from './authorization-flow.ts';
import { accountTexts, Begin } from './Begin.tsx';
import { ChoiceList } from './ChoiceList.tsx';
import { Done } from './Done.tsx';
import { notifyHost } from './host.ts';
import { type CallbackMessage, type Draft, keepInAddress, type Launch } from './launch.ts';
import { Loading, Notice, Said } from './Notice.tsx';
import {
  authorizationUrl,
  type Choice,
  Fault,
  type Made,
  type Progress,
  readFieldErrors,
  requestMissingScopes,
} from './queries.ts';
import { SetUp } from './SetUp.tsx';
import type { SessionView } from './session.ts';
import { useTranslate } from './texts.ts';
import { Waiting } from './Waiting.tsx';

/** The current step, from the state of the session and the choices on this page. */
export function ConnectPage({
  launch,
  view,
  onConnected,
}: {
  launch: Launch;
  view: SessionView;
  onConnected: (made: Made) => void;
}) {
  const t = useTranslate();
  const { session, progress, choices, fault, load, poll } = view;
  const [key, setKey] = useState(launch.integration);
  const choose = (chosen: string | undefined) => {
    setKey(chosen);
    keepInAddress('integration', chosen);
  };
  const [failure, setFailure] = useState<Failure>();
  const [isSkipped, setSkipped] = useState(false);
  const draft = useRef<Draft>(launch.returned?.draft ?? {});
  const { flow, begin, openedByLink, giveUp } = useAuthorizationFlow(launch, {
    poll,
    draft: () => draft.current,
    fail: ({ payload }) => setFailure(failureBy(payload)),
  });

  useSessionFailure(progress, setFailure);
  // The user went to the provider from a page that was left or reloaded since.
  const isAwayFromElsewhere = flow === undefined && progress?.under_way === true;
  useEffect(
    () => (isAwayFromElsewhere ? pollRepeatedly(() => poll().catch(() => false)) : undefined),
    [isAwayFromElsewhere, poll],
  );
  // The result of a flow in this tab, if the service has none.
  useEffect(() => {
    const reported = launch.returned?.message.payload;
    setFailure(reported && failureBy(reported));
  }, [launch]);
  useEffect(() => {
    if (failure !== undefined) {
      notifyHost({
        type: 'error',
        payload: { errorType: failure.type, errorMessage: failure.said ?? failure.kind },
      });
    }
  }, [failure]);
  useEffect(() => {
    if (flow?.is !== 'closed' || !launch.detectsClosedWindow) return;
    const payload = { errorType: 'window_closed', errorMessage: 'The window was closed.' };
    notifyHost({ type: 'error', payload });
  }, [flow?.is, launch]);

  const made = progress?.connection ?? undefined;
  const choice =
    choices?.choices.find(({ integration_id }) => integration_id === key) ?? onlyOf(choices?.choices);
  const provider = made?.provider_display_name ?? choice?.provider_display_name ?? '';
  useEffect(() => {
    const name = made?.display_name ?? choice?.display_name;
    document.title = name === undefined ? t('connect') : t('connectTitle', { name });
  }, [made, choice, t]);

  if (session === undefined) return launch.isFramed ? <Loading /> : <Ended why="incomplete" />;
  if (fault !== undefined) return <Refused fault={fault} onRetry={load} />;
  if (progress === undefined) return <Loading />;
  if (flow !== undefined) {
    const mayBegin = progress.state === 'open';
    const again = { onAgain: () => void begin(flow.url), onBack: giveUp };
    return <Waiting flow={flow} provider={provider} onOpened={openedByLink} {...(mayBegin && again)} />;
  }
  const start = (chosen: string, values: Record<string, string> = {}, ready?: Promise<void>) => {
    setFailure(undefined);
    return begin(authorizationUrl(session, { key: chosen, values }), ready);
  };
  if (made !== undefined && (failure === undefined || progress.state === 'expired')) {
    const mayGoOn = Date.parse(progress.expires_at) > Date.now();
    const rest = () => start(made.integration_id, {}, requestMissingScopes(session)).catch(load);
    return (
      <Done
        made={made}
        isFramed={launch.isFramed}
        onConnected={onConnected}
        {...(mayGoOn && { onRest: rest })}
        {...(progress.setup === 'sheet' &&
          !isSkipped && {
            setUp: <SetUp session={session} made={made} onChosen={load} onSkip={() => setSkipped(true)} />,
          })}
      />
    );
  }
  if (progress.state === 'expired' && progress.under_way) {
    return <Waiting flow={{ is: 'away', isLong: false }} provider={provider} />;
  }
  if (progress.state === 'expired') return <Ended why="expired" />;
  const refused = failure?.fields?.some(({ path }) => choice?.fields.some(({ name }) => name === path));
  if (failure !== undefined && !refused)
    return (
      <Failed
        failure={failure}
        provider={provider}
        account={choice?.account ?? undefined}
        onAgain={() => setFailure(undefined)}
      />
    );
  if (choices === undefined) return <Loading />;
  if (key !== undefined && choice === undefined) return <Ended why="otherThing" />;
  if (choices.choices.length === 0) {
    return <Notice tone="error" title={t('nothingTitle')} text={t('nothingText')} />;
  }
  if (choice === undefined) return <ChoiceList choices={choices} onChoose={choose} />;
  return (
    <Begin
      key={choice.integration_id}
      choice={choice}
      choices={choices}
      session={session}
      draft={draft.current[choice.integration_id] ?? {}}
      refused={failure?.fields ?? []}
      isUnderWay={progress.under_way}
      onDraft={(values) => {
        draft.current[choice.integration_id] = values;
      }}
      onTravel={(values) => void start(choice.integration_id, values)}
      onDone={load}
      onOther={choices.choices.length > 1 ? () => choose(undefined) : undefined}
    />
  );
}

/** Shows the failure of the last flow once. */
function useSessionFailure(progress: Progress | undefined, show: (failure: Failure) => void): void {
  const at = progress?.under_way ? undefined : progress?.failure?.at;
  // biome-ignore lint/correctness/useExhaustiveDependencies: by its time, since each answer is another object
  useEffect(() => {
    if (at !== undefined && progress?.failure) show(failureOfSession(progress.failure));
  }, [at]);
}

function onlyOf(choices: Choice[] | undefined): Choice | undefined {
  return choices?.length === 1 ? choices[0] : undefined;
}

function Failed({
  failure: { kind, said },
  provider,
  account,
  onAgain,
}: {
  failure: Failure;
  provider: string;
  /** The expected account. */
  account: NonNullable<Choice['account']> | undefined;
  onAgain: () => void;
}) {
  const t = useTranslate();
  const canRetry = kind !== 'gone' && kind !== 'otherBrowser';
  return (
    <Notice
      tone="error"
      title={t(`${kind}Title`, { provider })}
      text={t(`${kind}Text`, { provider })}
      {...(canRetry && { action: { label: t('tryAgain'), onClick: onAgain } })}
    >
      {kind === 'otherAccount' && account !== undefined && (
        <p className="account">{t(accountTexts[account.rule], { email: account.email })}</p>
      )}
      {said !== undefined && <Said text={said} />}
    </Notice>
  );
}

function Ended({ why }: { why: 'expired' | 'unknown' | 'incomplete' | 'gone' | 'otherThing' }) {
  const t = useTranslate();
  return <Notice tone="error" title={t(`${why}Title`)} text={t(`${why}Text`)} />;
}

function Refused({ fault, onRetry }: { fault: unknown; onRetry: () => void }) {
  const t = useTranslate();
  const { code, status, requestId } = fault instanceof Fault ? fault : { code: 'unknown', status: 0 };
  if (code === 'invalid_connect_session_token_format') return <Ended why="incomplete" />;
  if (status === 401) return <Ended why="unknown" />;
  if (code === 'unknown_connection') return <Ended why="gone" />;
  const action = { label: t('tryAgain'), onClick: onRetry };
  if (code === 'unreachable') {
    return <Notice tone="error" title={t('unreachableTitle')} text={t('unreachableText')} action={action} />;
  }
  return (
    <Notice tone="error" title={t('faultTitle')} text={t('faultText')} action={action}>
      <Said text={[code, requestId].filter(Boolean).join(' · ')} />
    </Notice>
  );
}

/** A flow that created no connection, by the texts for it. */
type Failure = { kind: Kind; type: string; said: string | undefined; fields?: Fault['fields'] };
type Kind =
  | 'denied'
  | 'blockedByAdmin'
  | 'misconfigured'
  | 'tooLate'
  | 'refused'
  | 'busy'
  | 'odd'
  | 'otherAccount'
  | 'noAccount'
  | 'otherBrowser'
  | 'failed'
  | 'gone';

const kindOfCause: Record<string, Kind> = {
  access_denied: 'denied',
  blocked_by_admin: 'blockedByAdmin',
  client_refused: 'misconfigured',
  code_refused: 'tooLate',
  credentials_refused: 'refused',
  provider_not_answering: 'busy',
  unexpected_answer: 'odd',
  another_account: 'otherAccount',
  account_unknown: 'noAccount',
  another_browser: 'otherBrowser',
};

/** By the error type of the callback page, if the cause is unknown. */
const kindOfType: Record<string, Kind> = {
  session_in_other_browser: 'otherBrowser',
  state_cookie_err: 'otherBrowser',
  state_err: 'tooLate',
  provider_config_err: 'misconfigured',
  integration_misconfigured: 'misconfigured',
  test_credentials_unavailable: 'misconfigured',
  another_account: 'otherAccount',
  unknown_connection: 'gone',
};

function failureOfSession({ cause, type, evidence }: NonNullable<Progress['failure']>): Failure {
  const said = [evidence.error, evidence.subtype, evidence.http_status].filter((part) => part !== undefined);
  return {
    kind: kindOfCause[cause] ?? kindOfType[type] ?? 'failed',
    type,
    said: said.length > 0 ? said.join(' · ') : undefined,
  };
}

function failureBy(reported: CallbackMessage['payload']): Failure {
  const { message, errorType: type, errors } = { message: undefined, errorType: 'unknown_err', ...reported };
  const kind = kindOfType[type] ?? 'failed';
  return { kind, type, said: kind === 'failed' ? message : undefined, fields: readFieldErrors(errors) };
}
