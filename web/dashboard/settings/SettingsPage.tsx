import { useSearch } from '@tanstack/react-router';
import type { ComponentType } from 'react';
import { Page } from '../../ui/Page.tsx';
import { GuideLink } from '../links.tsx';
import { PageTabs } from '../PageTabs.tsx';
import type { SettingsTab } from '../search.ts';
import { AuditTab } from './AuditTab.tsx';
import { AccountTab } from './account/AccountTab.tsx';
import { ConnectPageTab } from './ConnectPageTab.tsx';
import { EnvironmentsTab } from './EnvironmentsTab.tsx';
import { KeysTab } from './keys/KeysTab.tsx';
import { PeopleTab } from './people/PeopleTab.tsx';
import { useSettingsTabs } from './tabs.ts';
import { VariablesTab } from './VariablesTab.tsx';

const contents: Record<SettingsTab, ComponentType> = {
  account: AccountTab,
  keys: KeysTab,
  variables: VariablesTab,
  'connect-page': ConnectPageTab,
  audit: AuditTab,
  environments: EnvironmentsTab,
  people: PeopleTab,
};

export function SettingsPage() {
  const { tab } = useSearch({ from: '/$environment/settings' });
  const shown = useSettingsTabs();
  const current = shown.some((one) => one.tab === tab) ? tab : shown[0]?.tab;
  return (
    <Page
      title="Settings"
      about={
        <>
          Settings of this environment, of its users, and of your account.{' '}
          {current && <GuideLink to={current} />}
        </>
      }
    >
      <PageTabs
        tabs={shown.map(({ tab: name, label }) => {
          const Content = contents[name];
          return { name, label, content: () => <Content /> };
        })}
        open={current}
      />
    </Page>
  );
}
